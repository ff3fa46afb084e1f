"""AdaptDL's getters of the environment."""
import os

from rubato import env as _env


def checkpoint_path():
    return _env.checkpoint_path()


def share_path():
    return _env.output_path()


def job_id():
    return _env.job_id()


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
