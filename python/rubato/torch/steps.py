"""A worker's steps from the cursor on: what it reads, and when."""
import random
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset

from rubato import env
from rubato.torch import plan


class Step:
    """One optimizer step of this worker: `step` as planned for the group, `micros` as (own samples, batch)."""

    def __init__(self, step, micros, stand_in):
        self.step, self.micros, self.stand_in = step, micros, stand_in


class MapSteps:
    """Steps from the cursor to the end of the pass, of a dataset with indices."""

    is_all = False  # the cursor tells whether the pass is over

    def __init__(self, loader):
        self._loader = loader

    def __iter__(self):
        loader, loop = self._loader, self._loader._elastic
        length = loader._length()
        number, base = divmod(loop.state.cursor, length)
        order = loader._order(number)
        total, count = loop.micro_sizes()
        sections = loader._sections()
        if next(plan.steps(sections, base, total, count, loader.drop_last), None) is None:  # the rest is dropped
            loop.state.cursor += length - base
            return
        rank, replicas = env.rank(), env.world_size()

        def shares():
            """Of each step, for each micro-step. Anew for whoever asks: a loader with workers reads ahead."""
            for step in plan.steps(sections, base, total, count, loader.drop_last):
                yield step, [plan.share(micro, rank, replicas) for micro in step]

        own = (share for _, of_step in shares() for share in of_step if share[1])
        batches = iter(DataLoader(loader.dataset, batch_sampler=order.lists(own), **_with_own_seeds(loader._options)))

        def stand_in(step):
            one = DataLoader(loader.dataset, batch_sampler=[[order[step[0].start]]], **_alone(loader._options))
            return next(iter(one))

        for step, own_shares in shares():
            micros = ((own, next(batches) if own else None) for _, own in own_shares)
            yield Step(step, micros, lambda step=step: stand_in(step))


def _with_own_seeds(options):
    if not options.get("num_workers"):
        return options
    return {**options, "worker_init_fn": _OwnSeeds(options.get("worker_init_fn"), env.rank() * options["num_workers"])}


class _OwnSeeds:
    """Augmentation with other random numbers in each replica, where the script has seeded all of them alike."""

    def __init__(self, then, offset):
        self.then, self.offset = then, offset

    def __call__(self, worker):
        seed = torch.initial_seed() + self.offset
        torch.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        return self.then(worker) if self.then is not None else None


def _alone(options):
    kept = ("collate_fn", "pin_memory")
    return {key: value for key, value in options.items() if key in kept}


class _StreamShare(IterableDataset):
    """What one worker keeps of a stream that all of them read: (samples of the group, own, the samples) by micro-step."""

    def __init__(self, dataset, skip, total, rank, replicas, collate):
        self.dataset, self.skip, self.total = dataset, skip, total
        self.rank, self.replicas, self.collate = rank, replicas, collate

    def __iter__(self):
        if hasattr(self.dataset, "iter_from"):
            stream = iter(self.dataset.iter_from(self.skip))
        else:
            stream = iter(self.dataset)
            for _ in range(self.skip):
                if next(stream, stream) is stream:
                    return
        while True:
            samples = [sample for _, sample in zip(range(self.total), stream)]
            if not samples:
                return
            first, own = plan.share(plan.Micro(0, len(samples)), self.rank, self.replicas)
            kept = samples[first : first + own]
            yield len(samples), own, self.collate(kept if kept else samples[:1])


class IterableSteps:
    """Steps from the cursor to the end of the stream."""

    def __init__(self, loader):
        self._loader = loader
        self.is_all = True

    def __iter__(self):
        loader, loop = self._loader, self._loader._elastic
        total, count = loop.micro_sizes()
        options = dict(loader._options)
        collate = options.pop("collate_fn", None) or torch.utils.data.default_collate
        options["num_workers"] = min(options.get("num_workers", 0), 1)  # two would read the stream twice
        share = _StreamShare(loader.dataset, loop.state.cursor, total, env.rank(), env.world_size(), collate)
        batches = iter(DataLoader(share, batch_size=None, **options))
        start, pending, sizes = loop.state.cursor, [], []

        def step():
            nonlocal pending, sizes, start
            micros = [plan.Micro(start + i * sizes[0], size) for i, size in enumerate(sizes)]
            made = Step(micros, pending, lambda: None)
            start += sum(sizes)
            pending, sizes = [], []
            return made

        for size, own, batch in batches:
            if size < total:
                if pending:
                    yield step()
                if not loader.drop_last:
                    pending, sizes = [(own, batch)], [size]
                    yield step()
                return
            pending.append((own, batch))
            sizes.append(size)
            if len(pending) == count:
                yield step()
        if pending:
            yield step()
