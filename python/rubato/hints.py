"""Hints for the supervisor (AdaptDL's protocol): sent by a thread of their own, at most every 30 s, dropped rather than
waited for. Training never notices whether anybody listens."""
import json
import threading
import time
import urllib.error
import urllib.request

from rubato import env

INTERVAL_S = 30.0
_TIMEOUT_S = 10.0
_last_sent = 0.0
_sender = None


def is_due():
    """Asked for in each step: it costs no look at the environment."""
    return time.monotonic() - _last_sent >= INTERVAL_S


def send_later(make_hints):
    """Calls `make_hints` and sends what it returns, when it is time and the last one has gone out."""
    global _last_sent, _sender
    url, job = env.supervisor_url(), env.job_id()
    now = time.monotonic()
    if not url or not job or now - _last_sent < INTERVAL_S or (_sender is not None and _sender.is_alive()):
        return
    _last_sent = now
    body = json.dumps({key: value for key, value in make_hints().items() if value is not None}).encode()
    _sender = threading.Thread(target=_put, args=(f"{url}/hints/{job}", body), name="rubato-hints", daemon=True)
    _sender.start()


def _put(url, body):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
    except (OSError, urllib.error.URLError, ValueError):
        pass  # the next one will do
