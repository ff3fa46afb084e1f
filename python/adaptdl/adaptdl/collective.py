"""AdaptDL's collective module."""
from rubato import collective as _collective
from rubato.collective import teardown

__all__ = ["allreduce", "allreduce_async", "broadcast", "initialize", "teardown"]


def initialize(master_addr=None, master_port=None, replica_rank=None, num_replicas=None):
    """Also without torch.distributed: it then makes a group of its own."""
    _collective.initialize(master_addr, master_port, replica_rank, num_replicas, alone=True)


def _checked():
    if not _collective.initialized():
        raise RuntimeError("adaptdl.collective has not been initialized: call adaptdl.torch.init_process_group or "
                           "adaptdl.collective.initialize first")
    return _collective


def default_reduce_fn(a, b):
    a += b
    return a


def allreduce(value, reduce_fn=default_reduce_fn):
    return _checked().allreduce(value, reduce_fn)


def allreduce_async(value, reduce_fn=default_reduce_fn):
    return _checked().allreduce_async(value, reduce_fn)


def broadcast(value):
    return _checked().broadcast(value)
