"""AdaptDL's collective module."""
from rubato.collective import allreduce, allreduce_async, broadcast, initialize, teardown

__all__ = ["allreduce", "allreduce_async", "broadcast", "initialize", "teardown"]
