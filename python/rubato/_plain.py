"""For plain loops: `elastic` and `log`."""
import contextlib
import json
import os
import time

from rubato import env


@contextlib.contextmanager
def elastic(model, optimizer, lr_scheduler=None, mp_scaler=None, scaling_rule=None, backend=None, **ddp_options):
    """Makes a plain loop elastic. Gives a Job; use `job.model` in place of `model` inside."""
    import torch.distributed as dist

    from rubato import collective, group
    from rubato.torch import AdaptiveDataParallel, init_process_group

    own_group = not dist.is_initialized()
    if own_group:
        init_process_group(backend)
    own_group = own_group and group.current() is None  # one that an agent plans goes with the process
    try:
        yield Job(AdaptiveDataParallel(model, optimizer, lr_scheduler, mp_scaler, scaling_rule, **ddp_options))
    finally:
        if own_group:
            collective.teardown()
            dist.destroy_process_group()


class Job:
    def __init__(self, model):
        self.model = model
        self._loaders = {}

    def epochs(self, count):
        """The epochs that are not finished yet, as remaining_epochs_until."""
        from rubato.torch import remaining_epochs_until

        return remaining_epochs_until(count)

    def batches(self, loader, max_batch_size=None, local_bsz_bounds=None, gradient_accumulation=False):
        """The batches of a plain DataLoader, shared out among the workers. Its batch size is that of the whole group."""
        from rubato.torch import AdaptiveDataLoader

        adaptive = self._loaders.get(id(loader))
        if adaptive is None:
            adaptive = AdaptiveDataLoader(loader.dataset, loader.batch_size, shuffle=_shuffles(loader),
                                          drop_last=loader.drop_last, **_options(loader))
            if max_batch_size is not None:
                adaptive.autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)
            self._loaders[id(loader)] = adaptive
        return adaptive


def _shuffles(loader):
    from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

    if isinstance(loader.dataset, IterableDataset):
        return False
    if isinstance(loader.sampler, RandomSampler):
        return True
    if isinstance(loader.sampler, SequentialSampler):
        return False
    raise ValueError(f"job.batches knows shuffle=True and False, but not a sampler of the kind "
                     f"{type(loader.sampler).__name__}: use rubato.torch.AdaptiveDataLoader")


def _options(loader):
    names = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "persistent_workers")
    options = {name: getattr(loader, name) for name in names}
    if loader.num_workers > 0:
        options["prefetch_factor"] = loader.prefetch_factor
    if getattr(loader, "_auto_collation", True) is False:
        raise ValueError("job.batches needs a loader with a batch_size")
    return options


def log(**values):
    """Notes numbers of this moment (`rubato.log(loss=0.3)`): a line of JSON in $RUBATO_OUTPUT/metrics.jsonl, by rank 0."""
    folder = env.output_path()
    if env.rank() != 0 or not folder:
        return
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in values.items()}
    line = json.dumps({"time": round(time.time(), 3), "generation": env.generation(), **plain})
    with open(os.path.join(folder, "metrics.jsonl"), "a", encoding="utf-8") as file:
        file.write(line + "\n")
