"""A real browser for tests: headless Chromium, driven through chromedriver's WebDriver protocol with plain urllib."""
import json
import subprocess
import tempfile
import urllib.error
import urllib.request

import harness

DRIVER, CHROMIUM = "/usr/bin/chromedriver", "/usr/bin/chromium"


class Browser:
    """Use it with `with`. Every page's console and network are recorded."""

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="rubato-browser-",
                                                    ignore_cleanup_errors=True)  # the browser may still write there
        port = harness.free_port()
        self._base = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen([DRIVER, f"--port={port}", "--silent"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=harness.die_with_parent)
        try:
            harness.wait_until(self._ready, lambda: "chromedriver")
            options = {"binary": CHROMIUM,
                       "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                "--hide-scrollbars", "--disable-background-networking", "--no-first-run",
                                f"--user-data-dir={self._profile.name}"]}
            limits = {name: 1000 * harness.WAIT for name in ("script", "pageLoad")}
            wanted = {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                "timeouts": limits}}}
            self._base += "/session/" + self._new_session(wanted)
        except BaseException:
            self._driver.kill()
            self._driver.wait()
            raise
        return self

    def __exit__(self, *error):
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()
            self._profile.cleanup()

    def _new_session(self, wanted):
        """chromedriver gives a browser a minute to begin, which is too short for a very busy machine."""
        for _ in range(2):
            try:
                return self._call("POST", "/session", wanted)["sessionId"]
            except AssertionError:
                continue
        return self._call("POST", "/session", wanted)["sessionId"]

    def _ready(self):
        try:
            return self._call("GET", "/status")["ready"]
        except OSError:
            return False

    def _call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=harness.WAIT) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()[:2000]}") from None

    def devtools(self, command, **params):
        """A command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def look(self, width, height=900, dark=False):
        """What the next page is seen on. It has the keyboard, whichever window of a busy machine is in front."""
        self.devtools("Emulation.setFocusEmulationEnabled", enabled=True)
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=False)
        self.devtools("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path):
        self._call("POST", "/se/log", {"type": "browser"})  # of the page before
        self._call("POST", "/se/log", {"type": "performance"})
        self._call("POST", "/url", {"url": f"file://{path}"})

    def run(self, script, *args):
        """The value of a script that returns one."""
        return self._call("POST", "/execute/sync", {"script": script, "args": args})

    def move_to(self, x, y):
        """The pointer, to a place of the window."""
        move = {"type": "pointerMove", "duration": 0, "x": int(x), "y": int(y)}
        self._call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def press(self, key):
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def console(self):
        """What the page has said: errors, warnings, refusals of its policy."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        """The addresses that the page has asked for."""
        found = []
        for entry in self._call("POST", "/se/log", {"type": "performance"}):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                found.append(event["params"]["request"]["url"])
        return found
