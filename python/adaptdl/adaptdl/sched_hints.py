"""AdaptDL's hints for the scheduler. Training tells them by itself."""
import json
import logging
import types
import urllib.error
import urllib.request

from adaptdl import env
from adaptdl.goodput import PerfParams

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 10.0

PERF_PARAMS = types.MappingProxyType({name: 0.0 for name in PerfParams._fields})
SCHED_HINTS = types.MappingProxyType({
    "initBatchSize": 0, "localBszBounds": None, "globalBatchSize": None, "maxBatchSize": 0, "maxProfiledReplicas": 0,
    "gradientAccumulation": False, "gradParams": None, "perfParams": None})


def post_sched_hints(sched_hints, job_key):
    """Tells them, if somebody listens. Never throws: a training must not end over it."""
    url = env.supervisor_url()
    if not url:
        return
    unknown = sorted(set(sched_hints) - set(SCHED_HINTS))
    if unknown:
        _LOG.warning("hints are not told: %s is none", ", ".join(unknown))
        return
    request = urllib.request.Request(f"{url}/hints/{job_key}", json.dumps(sched_hints).encode(),
                                     {"Content-Type": "application/json"}, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
    except (OSError, urllib.error.URLError, ValueError) as error:
        _LOG.warning("hints were not taken: %s", error)
