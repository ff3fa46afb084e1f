"""AdaptDL's getters of the environment."""
import os

from rubato import env as _env


def checkpoint_path():
    return _env.checkpoint_path()


def share_path():
    """A folder for what workers share, as downloaded data; without AdaptDL's variable, that of the job's output."""
    return os.environ.get("ADAPTDL_SHARE_PATH") or _env.output_path()


def job_id():
    """"NAMESPACE/NAME" in a cluster; None where nobody has said one."""
    return os.environ.get("ADAPTDL_JOB_ID") or _env.job_id()


def master_addr():
    return _env.master_address()


def master_port():
    return _env.master_port()


def replica_rank():
    return _env.rank()


def num_nodes():
    return _env.node_count()


def num_replicas():
    return _env.world_size()


def num_restarts():
    """0 in the job's first life; Rubato counts its generations from 1."""
    if os.environ.get("ADAPTDL_NUM_RESTARTS"):
        return int(os.environ["ADAPTDL_NUM_RESTARTS"])
    if os.environ.get("RUBATO_GENERATION"):
        return max(_env.generation() - 1, 0)
    return _env.generation()


def local_rank():
    return _env.local_rank()


def adaptdl_sched_version():
    return os.environ.get("ADAPTDL_SCHED_VERSION")


def from_ray():
    """Whether Ray runs this code: never, here."""
    return False


def supervisor_url():
    return _env.supervisor_url()
