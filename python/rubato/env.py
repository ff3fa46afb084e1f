"""What the launcher tells a worker: Rubato's variables, torchrun's, and AdaptDL's, in that order of trust.

A script that is started by hand has none of them and is a group of one.
"""
import os


def _number(names, default):
    for name in names:
        value = os.environ.get(name)
        if value not in (None, ""):
            try:
                return int(value)
            except ValueError:
                raise ValueError(f"{name}={value!r} is not a whole number") from None
    return default


def _text(names, default=None):
    for name in names:
        value = os.environ.get(name)
        if value not in (None, ""):
            return value
    return default


def rank():
    return _number(["RANK", "ADAPTDL_REPLICA_RANK"], 0)


def world_size():
    return _number(["WORLD_SIZE", "ADAPTDL_NUM_REPLICAS"], 1)


def local_rank():
    return _number(["LOCAL_RANK"], 0)


def node_count():
    return _number(["GROUP_WORLD_SIZE", "ADAPTDL_NUM_NODES"], world_size())


def generation():
    """Which life of the group this is: it grows with each restart and each change of size."""
    return _number(["RUBATO_GENERATION", "ADAPTDL_NUM_RESTARTS", "TORCHELASTIC_RESTART_COUNT"], 0)


def master_address():
    return _text(["MASTER_ADDR", "ADAPTDL_MASTER_ADDR"], "127.0.0.1")


def master_port():
    return _number(["MASTER_PORT", "ADAPTDL_MASTER_PORT"], 0)


def job_id():
    return _text(["RUBATO_JOB_ID", "ADAPTDL_JOB_ID", "TORCHELASTIC_RUN_ID"])


def checkpoint_path():
    """The folder that outlives this process, or None: then nothing is saved."""
    path = _text(["ADAPTDL_CHECKPOINT_PATH", "RUBATO_CHECKPOINT"])
    if path:
        return path
    output = _text(["RUBATO_OUTPUT"])
    return os.path.join(output, "checkpoint") if output else None


def output_path():
    return _text(["RUBATO_OUTPUT", "ADAPTDL_SHARE_PATH"])


def supervisor_url():
    return _text(["ADAPTDL_SUPERVISOR_URL"])


def plan_folder():
    """Where the agent writes who is in the group (membership.py), or None: the group never changes in this process."""
    return _text(["RUBATO_PLAN_DIR"])


def worker_id():
    """This worker's name in plans; it stays when its rank changes."""
    return _text(["RUBATO_WORKER_ID"])
