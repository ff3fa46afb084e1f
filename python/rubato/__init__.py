"""Rubato's training library. `rubato.torch` has the parts; `rubato.elastic` puts them around a plain loop.

    with rubato.elastic(model, optimizer) as job:
        for batch in job.batches(loader):
            ...
"""
from rubato._plain import elastic, log, stop_requested

__all__ = ["elastic", "log", "stop_requested"]
