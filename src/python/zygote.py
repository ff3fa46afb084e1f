"""Rubato's prewarmed interpreter: imports the modules once, then forks each worker.

Started by src/os/zygote.cc as `python -u -c LOADER PROGRAM ARGS...`, with a socket to the agent as descriptor 3.
LOADER runs this text with its settings as `config`. The contract: a worker must not be able to tell that it was
not started as `python -u PROGRAM ARGS...`; where that cannot be kept, refuse, and the agent starts it cold.

Works from Python 3.7 on.
"""

import sys

# What a cold start has loaded before it looks beside the script: no file there can shadow these.
BEFORE_MAIN = frozenset(sys.modules)
if sys.path and sys.path[0] == "":  # of -c; the modules must not come from the current folder
    del sys.path[0]

import array
import ast
import ctypes
import gc
import importlib.machinery
import importlib.util
import json
import os
import resource
import runpy
import signal
import socket
import struct
import threading
import time
import warnings

AGENT = os.getppid()
SOCKET_FD = 3
PR_SET_PDEATHSIG = 1
CAP_SYS_NICE = 23
# Libraries with threads of their own that do not survive a fork. (The pools of OpenBLAS and OpenMP do, or are started
# at first use.)
NOT_FORK_SAFE = ("tensorflow", "jaxlib", "grpc._cython.cygrpc")
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/davinci", "/dev/accel")


class Refused(Exception):
    """Why a warm start would differ from a cold one, in words for the user."""


def to_bytes(text):
    return text.encode("latin-1")  # see as_text() in zygote.cc


def to_str(text):
    return os.fsdecode(to_bytes(text))


# -- Before ready: import at low priority, and look at what that did to this process.


def give_way():
    """The first workers are importing too: let them have the processor. Returns how to undo it."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with open("/proc/self/status") as status:
        capabilities = int(next(line for line in status if line.startswith("CapEff")).split()[1], 16)
    # Leaving SCHED_IDLE needs the right to one's own nice value; leaving SCHED_BATCH needs none.
    limit = resource.getrlimit(getattr(resource, "RLIMIT_NICE", 13))[0]
    may_return = capabilities >> CAP_SYS_NICE & 1 or limit == resource.RLIM_INFINITY or limit >= 20 - nice
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE if may_return else os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        pass
    return lambda: os.sched_setscheduler(0, policy, parameter)


def import_modules(names):
    for name in names:
        try:
            __import__(name)
        except Exception as error:
            raise Refused("cannot import %s: %s: %s" % (name, type(error).__name__, error))
        except SystemExit:
            raise Refused("importing %s ends the interpreter" % name)


def check_fork_safe():
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        raise Refused("the imports initialised CUDA, which does not survive a fork")
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if path.startswith(DEVICES):
            raise Refused("the imports opened %s, and a device's driver does not survive a fork" % path)
    if threading.active_count() > 1:
        names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        raise Refused("the imports started a thread (%s), which a fork would lose" % ", ".join(names))
    for name in NOT_FORK_SAFE:
        if name in sys.modules:
            raise Refused("%s cannot be used after a fork" % name.split(".")[0])


# -- What the program would find: a file beside it, or a sys.path of its own, may mean other modules than ours.


def find_program(main, cwd):
    """(the folder that a cold start puts first in sys.path, the program's source file or None)."""
    target = to_str(main["target"])
    if main["kind"] == "script":
        path = os.path.join(cwd, target)
        if not os.path.isfile(path):
            raise Refused("%s is not a file" % target)
        return os.path.dirname(os.path.realpath(path)), path
    if main["kind"] == "run_path":
        return cwd, os.path.join(cwd, target)
    if target in sys.modules:
        raise Refused("the program %s is itself among the prewarmed modules" % target)
    search, spec = [cwd] + sys.path, None
    parts = target.split(".")
    for depth in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:depth]), search)
        if spec is None:
            return cwd, None
        search = spec.submodule_search_locations
    if search is not None:
        spec = importlib.machinery.PathFinder.find_spec(target + ".__main__", search)
    return cwd, spec.origin if spec is not None else None


def check_no_shadow(folder):
    """A module in the program's folder comes before the ones that were imported here."""
    suffixes = importlib.machinery.all_suffixes()
    loaded = {name for name in sys.modules if "." not in name} - BEFORE_MAIN - set(sys.builtin_module_names)
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in sorted(entries):
        path = os.path.join(folder, entry)
        name = entry
        for suffix in suffixes:
            if entry.endswith(suffix):
                name = entry[: -len(suffix)]
                break
        else:
            if not any(os.path.exists(os.path.join(path, "__init__" + suffix)) for suffix in suffixes):
                continue
        module = sys.modules.get(name) if name in loaded else None
        if module is None:
            continue
        origin = getattr(module, "__file__", None)
        if origin and os.path.realpath(origin).startswith(os.path.realpath(path)):
            continue  # it is the very one
        raise Refused("%s shadows the prewarmed module %s" % (path, name))


class PathEdits(ast.NodeVisitor):
    """Finds the first statement that may change which module an import finds. Appending is harmless."""

    CHANGES = ("insert", "remove", "pop", "clear", "reverse", "sort", "__setitem__", "__delitem__")

    def __init__(self):
        self.line = None
        self.sys_names = {"sys"}
        self.path_names = set()
        self.site_names = {"site"}
        self.addsitedir_names = set()

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name in ("sys", "site"):
                getattr(self, alias.name + "_names").add(alias.asname or alias.name)

    def visit_ImportFrom(self, node):
        for alias in node.names:
            if (node.module, alias.name) == ("sys", "path"):
                self.path_names.add(alias.asname or alias.name)
            if (node.module, alias.name) == ("site", "addsitedir"):
                self.addsitedir_names.add(alias.asname or alias.name)

    def is_path(self, node):
        if isinstance(node, ast.Subscript):
            return self.is_path(node.value)
        if isinstance(node, ast.Name):
            return node.id in self.path_names
        return self.is_attribute(node, self.sys_names, "path")

    @staticmethod
    def is_attribute(node, owners, name):
        return (
            isinstance(node, ast.Attribute)
            and node.attr == name
            and isinstance(node.value, ast.Name)
            and node.value.id in owners
        )

    def found(self, node):
        if self.line is None:
            self.line = node.lineno

    def visit_targets(self, node, targets):
        for target in targets:
            for part in ast.walk(target):
                bare_name = isinstance(part, ast.Name)  # binds a name, does not change the list
                if not bare_name and self.is_path(part) and isinstance(part.ctx, (ast.Store, ast.Del)):
                    self.found(node)
        self.generic_visit(node)

    def visit_Assign(self, node):
        self.visit_targets(node, node.targets)

    def visit_AnnAssign(self, node):
        self.visit_targets(node, [node.target])

    def visit_Delete(self, node):
        self.visit_targets(node, node.targets)

    def visit_Call(self, node):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in self.CHANGES and self.is_path(function.value):
            self.found(node)
        named = isinstance(function, ast.Name) and function.id in self.addsitedir_names
        if named or self.is_attribute(function, self.site_names, "addsitedir"):
            self.found(node)
        self.generic_visit(node)


def check_path_edits(path):
    with open(path, "rb") as file:
        source = file.read()
    if source.startswith((importlib.util.MAGIC_NUMBER, b"PK\x03\x04")):
        raise Refused("%s is not Python source" % path)
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError):
        return  # the worker will tell
    edits = PathEdits()
    edits.visit(tree)
    if edits.line is not None:
        raise Refused("%s:%d changes sys.path, so that other modules may be meant" % (path, edits.line))


CHECKED = {}


def check_program(main, cwd):
    folder, path = find_program(main, cwd)
    check_no_shadow(folder)
    if path is None or not os.path.isfile(path):
        return
    stat = os.stat(path)
    state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if CHECKED.get(path) != state:
        check_path_edits(path)
        CHECKED[path] = state


# -- Serving.


def say(agent, message):
    agent.sendall(json.dumps(message).encode("ascii") + b"\n")


def next_request(agent):
    """(request, descriptors), or None when the agent is gone."""
    data, fds = b"", array.array("i")
    while len(data) < 4 or len(data) < 4 + struct.unpack("=I", data[:4])[0]:
        part, ancillary, _, _ = agent.recvmsg(1 << 20, socket.CMSG_SPACE(4 * 8), socket.MSG_CMSG_CLOEXEC)
        if not part:
            return None
        data += part
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) // fds.itemsize * fds.itemsize])
    return json.loads(data[4:].decode("utf-8")), list(fds)


def quiet_fork():
    # Python 3.12 warns of any thread, OpenBLAS's included.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def fork_twice():
    """The grandchild's pid in this process, 0 in the grandchild. The process between them ends, and the agent, a
    subreaper, becomes the grandchild's parent."""
    reader, writer = os.pipe()
    between = quiet_fork()
    if between == 0:
        try:
            pid = quiet_fork()
            if pid == 0:
                os.close(reader)
                os.close(writer)
                return 0
            os.setpgid(pid, pid)
            os.write(writer, b"%d" % pid)
        finally:
            if pid != 0:
                os._exit(0)
    os.close(writer)
    answer = os.read(reader, 32)
    os.close(reader)
    if not answer:
        raise Refused("the prewarmed interpreter cannot be forked")
    return int(answer)


def reap_between():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def serve(agent):
    """Returns the request in each worker; the zygote itself never returns."""
    while True:
        received = next_request(agent)
        if received is None:
            os._exit(0)
        reap_between()
        request, fds = received
        try:
            check_program(request, to_str(request["cwd"]) or os.getcwd())
            pid = fork_twice()
        except Refused as reason:
            say(agent, {"refused": str(reason)})
            os._exit(0)
        except OSError as error:
            say(agent, {"refused": "the prewarmed interpreter cannot be forked: %s" % error})
            os._exit(0)
        if pid == 0:
            agent.close()
            become_worker(request, fds)
            return request
        for fd in fds:
            os.close(fd)
        say(agent, {"pid": pid})


# -- In the worker.


def become_worker(request, fds):
    go = fds.pop()
    released = os.read(go, 1)
    # The agent releases us when it knows us; the process between us may take a little longer to end, and its end
    # would trigger a death signal that is already set.
    while released and os.getppid() != AGENT and os.path.exists("/proc/%d" % AGENT):
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not released or os.getppid() != AGENT:
        os._exit(1)
    os.close(go)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if not sys.stdout.write_through:  # without -u a terminal decides
        sys.stdout.reconfigure(line_buffering=os.isatty(1))

    os.environ.clear()
    for entry in request["env"]:
        name, _, value = to_bytes(entry).partition(b"=")
        os.environb[name] = value
    if request["cwd"]:
        os.chdir(to_bytes(request["cwd"]))
    renew()


def renew():
    """What a fresh interpreter would have of its own. (`random` does it by itself.)"""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch_random = sys.modules.get("torch.random")
    if torch_random is not None:
        torch_random.default_generator.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process().authkey = os.urandom(32)


def hide_our_frames():
    """A traceback begins at the program, as in a cold start. The program's own excepthook is called if it set one."""
    hook = sys.excepthook

    def without_our_frames(kind, error, trace):
        sys.excepthook = hook
        is_ours = lambda frame: frame.f_back is None or frame.f_code.co_filename == "<rubato zygote>"
        while trace is not None and is_ours(trace.tb_frame):
            trace = trace.tb_next
        error.__traceback__ = sys.last_traceback = trace
        hook(kind, error, trace)

    sys.excepthook = without_our_frames


def run_script(path, main):
    module = sys.modules["__main__"]
    if sys.version_info >= (3, 9):
        path = os.path.join(os.getcwd(), path)
    with open(path, "rb") as file:
        source = file.read()
    module.__file__ = path
    module.__cached__ = None
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    exec(compile(source, path, "exec", 0, True), main)


def record(error):
    """What torch's decorator of that name writes; torchrun has it around what --run-path runs."""
    import traceback
    details = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    try:
        with open(os.environ.get("TORCHELASTIC_ERROR_FILE") or os.devnull, "w") as file:
            json.dump({"message": {"message": "%s: %s" % (type(error).__name__, error), "extraInfo": details}}, file)
    except OSError:
        pass


def run(request):
    target = to_str(request["target"])
    args = [to_str(arg) for arg in request["args"]]
    main = sys.modules["__main__"].__dict__
    main.pop("b", None)  # of the loader
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [to_str(arg) for arg in request["argv"]]
    first = {
        "script": lambda: os.path.dirname(os.path.realpath(target)),
        "module": os.getcwd,
        "run_path": lambda: "",
    }[request["kind"]]()
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path.insert(0, first)
    try:
        if request["kind"] == "script":
            sys.argv[:] = [target] + args
            run_script(target, main)
        elif request["kind"] == "module":
            sys.argv[:] = ["-m"] + args
            runpy._run_module_as_main(target)
        else:
            sys.argv[:] = [target] + args
            runpy.run_path(target, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        if request["kind"] == "run_path" and isinstance(error, Exception):
            record(error)
        hide_our_frames()
        raise


def prepare(agent):
    settings = json.loads(config.decode("utf-8"))
    try:
        undo = give_way()
        import_modules([to_str(name) for name in settings["modules"]])
        check_fork_safe()
        check_program(settings["main"], os.getcwd())
        undo()
    except Refused as reason:
        say(agent, {"refused": str(reason)})
        os._exit(0)
    gc.collect()
    gc.freeze()  # the collector must not write to, and so copy, what all workers share
    say(agent, {"ready": True})


def start():
    agent = socket.socket(fileno=SOCKET_FD)
    agent.setblocking(True)
    os.set_inheritable(SOCKET_FD, False)
    prepare(agent)
    return serve(agent)


run(start())
