"""A pod on a node of a test: its containers in order, restarts, readiness, its end, and the status of it all.

advance() is called all the time by the kubelet's thread and never waits; report() by the thread that writes to the API
server. A pod that is asked to go gets SIGTERM, and SIGKILL after its grace period; then its object is removed.
"""
import http.client
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

from kube_container import Container
from kube_podspec import NotYet, Volumes, command, environment

BACKOFF_S, BACKOFF_MAX_S = 0.5, 4.0  # 10 s and 300 s of a real kubelet
PULL_RETRY_S = 1.0


def stamp(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Run:
    """A container of the specification over all its starts."""

    def __init__(self, spec, init):
        self.spec, self.name, self.init = spec, spec["name"], init
        self.now = None      # the Container that runs
        self.ended = None    # the last end: {"exitCode", "reason", "startedAt", "finishedAt", "containerID"}
        self.starts = 0
        self.begun = 0  # of them, how many have got to their own command
        self.waiting = ("PodInitializing" if not init else "ContainerCreating", "")
        self.next_start = 0.0
        self.ready = False
        self.probe = None

    def is_running(self):
        return self.now is not None and self.begun == self.starts

    def status(self, pod_uid):
        if self.is_running():
            state = {"running": {"startedAt": stamp(self.now.started_at)}}
        elif self.ended and self.waiting is None:
            state = {"terminated": self.ended}
        else:  # also while its mounts are made: commands cannot be run in it yet
            reason, message = self.waiting or ("ContainerCreating", "")
            state = {"waiting": {"reason": reason, "message": message}}
        last = {"terminated": self.ended} if self.ended and "terminated" not in state else {}
        return {"name": self.name, "image": self.spec["image"], "imageID": f"test://{self.spec['image']}",
                "containerID": f"test://{pod_uid}/{self.name}/{self.starts}" if self.starts else "",
                "ready": self.ready, "started": self.is_running(), "restartCount": max(0, self.starts - 1),
                "state": state, "lastState": last}


class Pod:
    def __init__(self, kubelet, pod):
        meta = pod["metadata"]
        self._kubelet, self.uid, self.name, self.namespace = kubelet, meta["uid"], meta["name"], meta["namespace"]
        self.node, self.object = pod["spec"]["nodeName"], pod
        self.folder = kubelet.folder / "pods" / self.uid
        self._logs = kubelet.folder / "logs" / f"{self.namespace}_{self.name}_{self.uid}"
        self.runs = [Run(spec, True) for spec in pod["spec"].get("initContainers", ())] + \
            [Run(spec, False) for spec in pod["spec"]["containers"]]
        self._network = self._volumes = None
        self._verdict = None  # (phase, reason, message) that an eviction or a refusal gave
        self._refused = False
        self._kill_at = None
        self._removable = False
        self._started_at = time.time()
        self._wanted = self._reported = None  # (status, whether the object is to be removed)
        self._since = {}  # condition -> (status, time)
        self._closed = False

    # --- steps, in the kubelet's thread

    def update(self, pod):
        self.object = pod
        if self._volumes:
            self._volumes.refresh(pod)
        if "deletionTimestamp" in pod["metadata"]:
            self._ask_to_end(pod["metadata"].get("deletionGracePeriodSeconds", 30))

    def advance(self):
        """Whether something changed that the API server should know."""
        for run in self.runs:
            self._collect(run)
        if self._kill_at is not None or self._verdict:
            self._end()
        elif not self._all_ended():
            self._start_what_is_due()
        self._wanted = (self.status(), self._removable)
        return self._wanted != self._reported

    def _collect(self, run):
        if not run.now:
            return
        code = run.now.code()
        if code is not None or run.begun == run.starts or run.now.has_begun():
            run.begun = run.starts
        if code is None:
            if run.probe is None:
                run.ready = not run.init and run.is_running()
            return
        run.ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error",
                     "startedAt": stamp(run.now.started_at), "finishedAt": stamp(time.time()),
                     "containerID": f"test://{self.uid}/{run.name}/{run.starts}"}
        run.now, run.ready = None, False
        if run.probe:
            run.probe.stop.set()
            run.probe = None
        if self._restarts(run, code):
            delay = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** (run.starts - 1))
            run.next_start = time.monotonic() + delay
            run.waiting = ("CrashLoopBackOff", f"back-off {delay:.0f}s restarting failed container={run.name}")
        else:
            run.waiting = None

    def _restarts(self, run, code):
        policy = self.object["spec"].get("restartPolicy", "Always")
        if self._kill_at is not None or self._verdict:
            return False
        return code != 0 if run.init and policy != "Never" else \
            policy == "Always" and not run.init or policy == "OnFailure" and code != 0

    def _all_ended(self):
        return self._init_failed() or all(run.waiting is None and not run.now for run in self.runs)

    def _init_failed(self):
        return any(run.init and run.ended and run.waiting is None and run.ended["exitCode"] != 0 for run in self.runs)

    def _start_what_is_due(self):
        if not self._prepared():
            return
        for run in self.runs:
            if run.now is None and run.waiting is not None and time.monotonic() >= run.next_start:
                self._start(run)
            if run.init and (run.now or run.waiting is not None):
                return  # the next one has to wait for it

    def _prepared(self):
        """Network and volumes; tried again until all that they need is there."""
        if self._network is None:
            self._network = self._kubelet.network.attach(self.object["spec"].get("hostname") or self.name)
        if self._volumes is None:
            volumes = Volumes(self.object, self.folder / "volumes", self._kubelet.storage, self._kubelet.sources,
                              self._network.address, self._kubelet.network.address)
            try:
                volumes.prepare()
            except NotYet as missing:
                for run in self.runs:
                    run.waiting = ("ContainerCreating", str(missing))
                return False
            self._volumes = volumes
        return True

    def _start(self, run):
        image = self._kubelet.find_image(run.spec["image"])
        if image.bad:
            run.next_start = time.monotonic() + PULL_RETRY_S
            first = run.waiting[0] not in ("ErrImagePull", "ImagePullBackOff")
            name = run.spec["image"]
            run.waiting = ("ErrImagePull", f'rpc error: code = NotFound desc = failed to pull image "{name}"') \
                if first else ("ImagePullBackOff", f'Back-off pulling image "{name}"')
            return
        network = self._kubelet.network
        try:
            env = environment(self.object, run.spec, image, self._kubelet.sources, self._kubelet.base_env,
                              self._network.address, network.address)
        except NotYet as missing:
            run.next_start = time.monotonic() + PULL_RETRY_S
            run.waiting = (missing.reason, str(missing))
            return
        logs = self._logs / run.name
        logs.mkdir(parents=True, exist_ok=True)
        mounts = [(source, path, Path(source).is_file()) for path, source in image.files.items()]
        mounts += self._volumes.mounts(run.spec)
        hostname = self.object["spec"].get("hostname") or self.name
        subdomain = self.object["spec"].get("subdomain")
        full = f"{hostname}.{subdomain}.{self.namespace}.svc.cluster.local " if subdomain else ""
        files = {"/etc/resolv.conf": network.resolv_conf(self.namespace), "/etc/hostname": hostname + "\n",
                 "/etc/hosts": f"127.0.0.1 localhost\n::1 localhost\n{self._network.address} {full}{hostname}\n"}
        run.now = Container(self.folder / "containers" / f"{run.name}-{run.starts}", self._network,
                            command(run.spec, image, env), env, run.spec.get("workingDir", image.workdir), mounts,
                            files, logs / f"{run.starts}.log")
        run.starts += 1
        run.waiting = None
        if run.spec.get("readinessProbe"):
            run.probe = Probe(run, self._network.address)

    # --- the end

    def _ask_to_end(self, grace_s):
        deadline = time.monotonic() + grace_s
        if self._kill_at is None:
            for run in self.runs:
                if run.now:
                    run.now.terminate()
        self._kill_at = min(deadline, self._kill_at or deadline)

    def _end(self):
        for run in self.runs:
            if run.now and time.monotonic() >= (self._kill_at or 0):
                run.now.kill()
            elif not run.now and run.waiting is not None:
                run.waiting = None  # it is not started any more
        if self._kill_at is not None and not any(run.now for run in self.runs):
            self._removable = True

    def evict(self, message):
        self._verdict = ("Failed", "Evicted", message)
        for run in self.runs:
            if run.now:
                run.now.kill()

    def refuse(self, reason):
        """Before anything of it was started: a status without containers and conditions, as the real one's."""
        self._verdict, self._refused = ("Failed", reason, f"Pod Node didn't have enough resource: {reason}"), True

    def cut(self):
        if self._network:
            self._network.cut()

    def die(self):
        """With its node."""
        self.cut()
        for run in self.runs:
            if run.now:
                run.now.kill()
                run.now.process.wait()

    def mend(self):
        if self._network:
            self._network.mend()

    def close(self):
        if self._closed:
            return
        self._closed = True
        for run in self.runs:
            if run.probe:
                run.probe.stop.set()
            if run.now:
                run.now.kill()
                run.now.process.wait()
        if self._network:
            self._network.close()
        if self._volumes:
            self._volumes.remove()

    def alive(self):
        return any(run.now for run in self.runs)

    def container_pid(self, name=None):
        return next(run.now.pid for run in self.runs if run.now and name in (None, run.name) and (name or not run.init))

    def container(self, name):
        return next((run.now for run in self.runs if run.name == name), None)

    # --- its status

    def phase(self):
        if self._verdict:
            return self._verdict[0]
        main = [run for run in self.runs if not run.init]
        if self._init_failed():
            return "Failed"
        if all(run.waiting is None and not run.now and run.ended for run in main):
            return "Succeeded" if all(run.ended["exitCode"] == 0 for run in main) else "Failed"
        if self._removable:
            return "Failed"
        return "Running" if any(run.begun for run in main) else "Pending"

    def status(self):
        phase = self.phase()
        if self._refused:
            return {"phase": phase, "reason": self._verdict[1], "message": self._verdict[2],
                    "startTime": stamp(self._started_at)}
        main = [run for run in self.runs if not run.init]
        initialized = all(run.ended and run.ended["exitCode"] == 0 and not run.now for run in self.runs if run.init)
        ready = phase == "Running" and all(run.ready for run in main)
        finished = {"reason": "PodCompleted"} if phase == "Succeeded" else {}
        unready = {} if ready else finished or {"reason": "ContainersNotReady"}
        status = {
            "phase": phase, "startTime": stamp(self._started_at), "hostIP": self._kubelet.network.address,
            "qosClass": self.object["status"].get("qosClass", "BestEffort"),
            "conditions": [self._condition("PodScheduled", True, {}), self._condition("Initialized", initialized, {}),
                           self._condition("ContainersReady", ready, unready),
                           self._condition("Ready", ready, unready)],
            "containerStatuses": [run.status(self.uid) for run in main],
            "initContainerStatuses": [run.status(self.uid) for run in self.runs if run.init]}
        if self._network:
            status |= {"podIP": self._network.address, "podIPs": [{"ip": self._network.address}]}
        if self._verdict:
            status |= {"reason": self._verdict[1], "message": self._verdict[2]}
        return status

    def _condition(self, kind, value, more):
        known = self._since.get(kind)
        if not known or known[0] != value:
            known = self._since[kind] = (value, stamp(time.time()))
        return {"type": kind, "status": "True" if value else "False", "lastTransitionTime": known[1], **more}

    def report(self, api):
        """Writes the status, and removes the object of a pod that has ended as asked."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        status, removable = wanted = self._wanted
        if self._reported is None or status != self._reported[0]:
            api.merge(f"{path}/status", {"metadata": {"uid": self.uid}, "status": status})
            self._reported = (status, False)
        if removable:
            api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
        self._reported = wanted


class Probe:
    """A readiness probe by HTTP, TCP or a command, in a thread of its own as it may wait."""

    def __init__(self, run, address):
        self._run, self._address, self._spec = run, address, run.spec["readinessProbe"]
        self.stop = threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while not self.stop.wait(min(0.2, self._spec.get("periodSeconds", 10))):
            ready = self._ask()
            if not self.stop.is_set() and self._run.probe is self:
                self._run.ready = ready

    def _ask(self):
        import socket
        import ssl
        import subprocess
        try:
            if "exec" in self._spec:
                return subprocess.run(self._run.now.enter(self._spec["exec"]["command"]), timeout=10,
                                      capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
            where = self._spec.get("httpGet") or self._spec["tcpSocket"]
            port = self._port(where["port"])
            if "tcpSocket" in self._spec:
                socket.create_connection((self._address, port), 2).close()
                return True
            connection = http.client.HTTPConnection(self._address, port, timeout=5)
            if where.get("scheme") == "HTTPS":
                anybody = ssl._create_unverified_context()
                connection = http.client.HTTPSConnection(self._address, port, timeout=5, context=anybody)
            connection.request("GET", where.get("path", "/"))
            code = connection.getresponse().status
            connection.close()
            return 200 <= code < 400
        except (OSError, http.client.HTTPException, subprocess.SubprocessError, AttributeError):
            return False

    def _port(self, port):
        named = {one.get("name"): one["containerPort"] for one in self._run.spec.get("ports", ())}
        return port if isinstance(port, int) else named[port]
