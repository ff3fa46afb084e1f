"""For plain loops: `elastic` and `log`; for those of other libraries, `stop_requested`."""
import atexit
import contextlib
import json
import os
import queue
import sys
import threading
import time
import weakref

from rubato import env


@contextlib.contextmanager
def elastic(model, optimizer, lr_scheduler=None, mp_scaler=None, scaling_rule=None, backend=None, **ddp_options):
    """Makes a plain loop elastic. Gives a Job; use `job.model` in place of `model` inside."""
    import torch.distributed as dist

    from rubato import group
    from rubato.torch import AdaptiveDataParallel, ending, init_process_group

    own_group = not dist.is_initialized()
    if own_group:
        first = next(model.parameters(), None)
        on_cpu = first is not None and first.device.type == "cpu"  # NCCL knows no other device than a GPU
        init_process_group(backend or ("gloo" if on_cpu else None))
    own_group = own_group and group.current() is None  # one that an agent plans goes with the process
    failed = True
    try:
        yield Job(AdaptiveDataParallel(model, optimizer, lr_scheduler, mp_scaler, scaling_rule, **ddp_options))
        failed = False
    finally:
        if own_group:
            ending.leave(failed)


class Job:
    def __init__(self, model):
        self.model = model
        self._loaders = {}  # id of a plain loader -> (weak reference to it, the adaptive one)

    def metrics(self):
        """What the library knows of this moment, as plain numbers: for `rubato.log(**job.metrics())` or a tracker."""
        return self.model.metrics()

    def epochs(self, count):
        """The epochs that are not finished yet, as remaining_epochs_until."""
        from rubato.torch import remaining_epochs_until

        return remaining_epochs_until(count)

    def batches(self, loader, max_batch_size=None, local_bsz_bounds=None, gradient_accumulation=False):
        """The batches of a plain DataLoader, shared out among the workers. Its batch size is that of the whole group.

        The loader may be made for this loop only (`job.batches(DataLoader(…))`): after a restart it is the one that was
        made, or used, as the same one of its epoch.
        """
        from rubato.torch import AdaptiveDataLoader, data, epoch

        known, adaptive = self._loaders.get(id(loader), (None, None))
        if known is not None and known() is loader:
            epoch.keep_state(data.KIND, adaptive._elastic.state)  # in the order of calls, as where it is made here
            return adaptive
        adaptive = AdaptiveDataLoader(loader.dataset, loader.batch_size, **_order(loader), drop_last=loader.drop_last,
                                      **_options(loader))
        if max_batch_size is not None:
            adaptive.autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)
        self._loaders[id(loader)] = weakref.ref(loader, self._forgetter(id(loader))), adaptive
        return adaptive

    def _forgetter(self, number):
        """Loaders made for one loop come and go, and the number of one that is gone is given to another."""
        loaders = self._loaders

        def forget(reference):
            if loaders.get(number, (None,))[0] is reference:
                del loaders[number]

        return forget


def _order(loader):
    from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler
    from torch.utils.data.distributed import DistributedSampler

    sampler = loader.sampler
    if isinstance(loader.dataset, IterableDataset) or isinstance(sampler, SequentialSampler):
        return {"shuffle": False}
    whole = not getattr(sampler, "replacement", False) and len(sampler) == len(loader.dataset)
    if isinstance(sampler, RandomSampler) and whole:
        return {"shuffle": True}
    if isinstance(sampler, DistributedSampler):  # as one of a loop that was distributed before: we share them out now
        return {"shuffle": sampler.shuffle, "seed": sampler.seed}
    return {"sampler": sampler}


def _options(loader):
    names = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "persistent_workers", "generator",
             "multiprocessing_context")
    options = {name: getattr(loader, name) for name in names}
    if getattr(loader, "pin_memory_device", ""):
        options["pin_memory_device"] = loader.pin_memory_device
    if loader.num_workers > 0:
        options["prefetch_factor"] = loader.prefetch_factor
    if getattr(loader, "_auto_collation", True) is False:
        raise ValueError("job.batches needs a loader with a batch_size")
    return options


def stop_requested():
    """Whether any worker was asked to stop (SIGTERM, SIGINT): for loops of other libraries, which save and leave then.

    All workers must call it, as often, between two steps: all of them get True after the same one. Never waits: what
    one worker is asked for the others know at the next call.
    """
    global _stop_flags
    from rubato import _signal, collective

    if _stop_flags is None:
        _signal.install()
        _stop_flags = collective.MaxFlags(1)
    return bool(_stop_flags.exchange([float(_signal.stop_requested())])[0])


_stop_flags = None


def log(**values):
    """Notes numbers of this moment: `rubato.log(loss=0.3)`.

    A line of JSON with time, generation, epoch and step in $RUBATO_OUTPUT/metrics.jsonl, by rank 0; from a step that is
    dropped, none. Never waits: it is written by a thread, and dropped where the disk does not keep up.
    """
    folder = env.output_path()
    if env.rank() != 0 or not folder:
        return
    where = _position()
    if where is not None:
        plain = {key: value.item() if hasattr(value, "item") else value for key, value in values.items()}
        moment = {"time": round(time.time(), 3), "generation": env.generation(), **where}
        _lines.put(os.path.join(folder, "metrics.jsonl"), json.dumps({**moment, **plain}))


def _position():
    """Epoch and step where the library counts them; None in a step that does not count."""
    parts = sys.modules.get("rubato.torch")
    if parts is None:
        return {}
    loop = parts.current_dataloader()
    if loop is not None and loop.dropped:
        return None
    where = {"step": parts.profile.current().steps}
    return where if parts.current_epoch() is None else {"epoch": parts.current_epoch(), **where}


class _Lines:
    """Lines on their way into files. Bounded; how many were dropped is noted in the next line that is not."""

    def __init__(self, most=1000):
        self._queue = queue.Queue(most)
        self._dropped = 0
        self._thread = None

    def put(self, path, line):
        if self._thread is None or self._pid != os.getpid():  # a forked child has no thread yet
            self._queue = queue.Queue(self._queue.maxsize)
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._write, name="rubato-log", daemon=True)
            self._thread.start()
            atexit.register(self.flush)
        try:
            self._queue.put_nowait((path, line))
        except queue.Full:
            self._dropped += 1

    def _write(self):
        while True:
            path, line = self._queue.get()
            try:
                with open(path, "a", encoding="utf-8") as file:
                    if self._dropped:
                        file.write(json.dumps({"dropped_lines": self._dropped}) + "\n")
                        self._dropped = 0
                    file.write(line + "\n")
            except OSError:
                self._dropped += 1
            self._queue.task_done()

    def flush(self, timeout_s=2.0):
        """Until all is written, but not for long."""
        end = time.monotonic() + timeout_s
        while self._queue.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)


_lines = _Lines()
