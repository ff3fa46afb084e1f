"""Data loaders that survive restarts, changes of size and changes of batch size: each sample of a pass counts once."""
import collections
import contextlib
import json
import math
import sys
import time
import weakref

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from rubato import _signal, checkpoint, collective, env, group
from rubato.torch import plan, profile
from rubato.torch.epoch import current_epoch

CHECKPOINT_EVERY_S = 300.0
ADAPT_EVERY_STEPS = 100
# AdaptDL ends an autoscaled epoch by progress, not when the data are through; the module `adaptdl` sets this.
epochs_end_by_progress = False

_STOP, _SAVE, _ADAPT, _GENERATION = range(4)
_flags = None
_counter = 0
step_listeners = weakref.WeakSet()  # whoever notes something in a step is told (`commit`) whether it counted


def forget_group():
    """What was exchanged in a group that is left. Returns what is under way there."""
    global _flags
    works = _flags.under_way() if _flags is not None else []
    _flags = None
    return works


class ElasticSampler(Sampler):
    """Partitions a dataset among the replicas from a given position on; `set_epoch(epoch, index)` chooses both.

    For loops that use a plain DataLoader. Every replica gets as many samples as the others, the last ones repeated if
    need be; AdaptiveDataLoader repeats none.
    """

    def __init__(self, dataset, shuffle=True):
        self.dataset, self.shuffle = dataset, shuffle
        self.num_replicas, self.rank = env.world_size(), env.rank()
        self.epoch = self.index = 0

    def __iter__(self):
        length = len(self.dataset)
        order = plan.permutation(length, self.shuffle, 0, self.epoch, self.index // length)
        base = self.index % length
        own = list(order[base + self.rank :: self.num_replicas])
        if len(own) < len(self):
            own.append(order[self.rank % length])
        return iter(own)

    def __len__(self):
        return math.ceil((len(self.dataset) - self.index % len(self.dataset)) / self.num_replicas)

    def set_epoch(self, epoch, index=0):
        self.epoch, self.index = epoch, index


def current_dataloader():
    """The loop that is being run, as an object that knows its batch sizes, or None."""
    return Loop.current


class _LoopState(checkpoint.State):
    def __init__(self, name):
        super().__init__(name)
        self.cursor = 0  # samples that the group has taken in this loop; passes follow each other
        self.last_position = {}  # epoch -> the last loop position of it that came to its end
        self.exhausted = False  # a stream came to its end; its loop not yet
        self.trains = False

    def save(self, fileobj):
        state = {"cursor": self.cursor, "last_position": list(self.last_position.items()),
                 "exhausted": self.exhausted, "trains": self.trains}
        fileobj.write(json.dumps(state).encode())

    def load(self, fileobj):
        state = json.loads(fileobj.read())
        self.cursor = int(state["cursor"])
        self.last_position = {epoch: position for epoch, position in state["last_position"]}
        self.exhausted, self.trains = state.get("exhausted", False), state.get("trains", False)


def _changes():
    planned = group.current()
    return planned.changes if planned else 0


class Loop:
    """The elastic part of a data loader: cursor, batch sizes, and what the group agrees on after each step."""

    current = None
    _training = None
    _positions = collections.Counter()  # epoch -> loops that ended so far in it, of all loaders
    models = weakref.WeakSet()  # the AdaptiveDataParallels

    def __init__(self, batch_size):
        global _counter
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number above 0, not {batch_size!r}")
        self.batch_size = batch_size
        self.max_batch_size = None
        self.bounds = None
        self.accumulation = False
        self.batch = None  # goodput.Batch in use while autoscaling
        self._chosen_for = 0  # which of this worker's groups
        self.weight = 1.0  # of this worker's gradient in the step under way
        self.optim_step = True  # the micro-step under way ends with an update
        self.regular = True  # a full step: its gradients may be measured
        self.dropped = False  # the step under way was broken by a lost worker: it counts nowhere, and is taken again
        self._size = 0  # samples of the step under way that the cursor has not passed yet
        self._saved_at = time.monotonic()
        self.state = _LoopState(f"adaptdl-dataloader-{_counter}")
        _counter += 1
        checkpoint.load_state(self.state)

    def train(self):
        """Makes this the loop whose steps train: the first one whose batches see a backward pass, or that autoscales."""
        if Loop._training is None:
            Loop._training = self
            self.state.trains = True
        if self.training:
            profile.current().configure(self.batch_size, self.max_batch_size, self.bounds, self.accumulation)

    @property
    def training(self):
        if Loop._training is None and self.state.trains:
            Loop._training = self  # another worker, or an earlier life, has found out
        return Loop._training is self

    def may_train(self):
        """Whether a worker without samples must take part all the same: the others would wait for its gradients."""
        return self.training or (Loop._training is None and any(model.training for model in Loop.models))

    @property
    def autoscales(self):
        return self.max_batch_size is not None

    @property
    def current_local_bsz(self):
        return self.batch.atomic_bsz if self.batch else math.ceil(self.batch_size / env.world_size())

    @property
    def accumulation_steps(self):
        return self.batch.accum_steps if self.batch else 0

    @property
    def current_batch_size(self):
        if self.batch is None:
            return self.batch_size
        return self.batch.atomic_bsz * (self.batch.accum_steps + 1) * env.world_size()

    @property
    def current_index(self):
        return self.state.cursor if Loop.current is self else None

    def is_optim_step(self):
        return self.optim_step

    def micro_sizes(self):
        """(samples of the group a micro-step, micro-steps an update)."""
        if self.batch is None:
            return self.batch_size, 1
        return self.batch.atomic_bsz * env.world_size(), self.batch.accum_steps + 1

    def adapt(self):
        """Takes the batch size that rank 0 finds best. All ranks must call it."""
        if not self.autoscales:
            return
        chosen, changes = None, None
        while changes != _changes():  # a choice for another group is of no use
            changes = _changes()
            if changes != self._chosen_for:
                self.batch, self._chosen_for = None, changes
            chosen = profile.current().suggest(self.batch) if env.rank() == 0 else None
            try:
                with collective.while_it_lasts():  # a member that meets us in the next group chooses there, once
                    chosen = collective.broadcast(tuple(chosen) if chosen else None)
            except collective.Cancelled:
                continue
        if self.batch is None or tuple(self.batch) != tuple(chosen):
            for model in list(Loop.models):
                model.forget_gradients()
        self.batch = profile.goodput.Batch(*chosen)

    def agree(self):
        """Between two optimizer steps: saves, leaves, meets in another group; True when steps are to be planned anew."""
        planned = group.current()
        if planned is None:
            return self._act(self._exchange(0))
        if planned.broken():
            planned.meet()
            return True
        try:
            flags = self._exchange(planned.newest())
        except RuntimeError as error:
            planned.fail(error)
            planned.meet()
            return True
        changes = planned.changes
        if flags[_GENERATION] > planned.generation and not flags[_STOP]:
            self._change_group(planned)
            return True
        return self._act(flags) or planned.changes != changes

    def _change_group(self, planned):
        """All members are here, after the same step: what only some of them know is put together, then they part."""
        changes = planned.changes
        try:
            _flags.finish()
            checkpoint.synchronize()
        except collective.Cancelled:
            pass
        except RuntimeError as error:
            if planned.changes == changes:
                planned.fail(error)
        if planned.changes == changes:  # else a worker was lost just now, and the others have met already
            planned.meet()

    def _exchange(self, generation):
        global _flags
        if _flags is None:
            _flags = collective.MaxFlags(4)
        now = time.monotonic()
        rank0 = env.rank() == 0
        due = rank0 and now - self._saved_at > CHECKPOINT_EVERY_S
        steps = profile.current().steps
        adapt = rank0 and self.autoscales and self.training and steps % ADAPT_EVERY_STEPS == ADAPT_EVERY_STEPS - 1
        return _flags.exchange([float(_signal.stop_requested()), float(due), float(adapt), float(generation)])

    def _act(self, flags):
        try:
            if flags[_STOP]:
                checkpoint.save_all_states()
                sys.exit(143)  # as a process that SIGTERM ended; launchers take it for "asked to go", not for failed
            if flags[_SAVE]:
                self._saved_at = time.monotonic()
                checkpoint.save_all_states(background=True)
        except collective.Cancelled:
            return True  # a worker was lost meanwhile; whoever wants it asks again
        return bool(flags[_ADAPT])

    @contextlib.contextmanager
    def running(self):
        """Around one whole loop. Gives False when this loop ended before the restart: it is passed over then."""
        if Loop.current is not None:
            raise RuntimeError("overlapping loops over adaptive data loaders: end the one before first")
        group.join()
        epoch = current_epoch()
        position = Loop._positions[epoch]
        if position <= self.state.last_position.get(epoch, -1):
            Loop._positions[epoch] += 1
            yield False
            return
        Loop.current = self
        try:
            yield True
            if group.current() is not None:
                collective.allreduce(0)  # nobody leaves the loop while another may still have to repeat its last step
        except GeneratorExit:
            self._commit(not self.dropped)
            # The script left the loop with `break`: it has ended.
        finally:
            if Loop.current is self:  # a loop that was dropped long ago may be collected while another one runs
                Loop.current = None
        # Not reached by an exit in the middle: what was saved then must stay in the middle.
        self.state.cursor = 0
        self.state.exhausted = False
        self.state.last_position = {epoch: position}
        Loop._positions[epoch] += 1

    def begin_step(self, step):
        self.dropped = False
        self._size = sum(micro.total for micro in step)

    def count_samples(self):
        """The samples of the step under way have counted: with the optimizer's update, or at the end of the step."""
        self.state.cursor += self._size
        self._size = 0

    def end_step(self):
        """True when the step was dropped; it is to be taken again then, unless another member has completed it."""
        if not self.dropped:
            self.count_samples()
            self._commit(True)
            return False
        steps = profile.current().steps
        self.agree()
        self._commit(profile.current().steps > steps)
        for model in list(Loop.models):
            model.begin_anew()
        self.dropped, self.batch = False, None
        return True

    @staticmethod
    def _commit(counted):
        for one in list(step_listeners):
            one.commit(counted)

    def begin_micro(self, step, index, own):
        replicas = env.world_size()
        total, count = self.micro_sizes()
        self.optim_step = index == len(step) - 1
        self.weight = plan.weight(step, own, replicas)
        self.regular = len(step) == count and step[0].total == total


class AdaptiveDataLoader:
    """A DataLoader whose `batch_size` is that of the whole group, shared out among however many workers there are.

    Takes DataLoader's other arguments but `sampler` and `batch_sampler`. Map-style datasets are read where this worker's
    share is; of an iterable dataset each worker reads the whole stream and keeps its share.
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, seed=0, **kwargs):
        for name in ("sampler", "batch_sampler"):
            if kwargs.get(name) is not None:
                raise ValueError(f"{name} does not go with AdaptiveDataLoader: it decides itself who reads what")
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.drop_last = kwargs.pop("drop_last", False)
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable and shuffle:
            raise ValueError("an iterable dataset cannot be shuffled here: let it shuffle itself, the same on each worker")
        self._options = {key: value for key, value in kwargs.items() if key not in ("sampler", "batch_sampler")}
        self._elastic = Loop(batch_size)

    def autoscale_batch_size(self, max_batch_size, local_bsz_bounds=None, gradient_accumulation=False):
        """Lets the batch size grow to `max_batch_size` where that learns faster; `local_bsz_bounds` are a worker's."""
        loop = self._elastic
        if not isinstance(max_batch_size, int) or max_batch_size < loop.batch_size:
            raise ValueError(f"max_batch_size must be a whole number of at least {loop.batch_size}")
        low, high = local_bsz_bounds or (None, None)
        if (low is not None and low > loop.batch_size) or (high is not None and high < 1):
            raise ValueError(f"local_bsz_bounds {local_bsz_bounds!r} leave out the batch size {loop.batch_size}")
        if high is not None and high < loop.batch_size and not gradient_accumulation and env.world_size() == 1:
            raise ValueError(f"local_bsz_bounds {local_bsz_bounds!r} leave out the batch size {loop.batch_size}: "
                             "allow gradient_accumulation")
        loop.max_batch_size, loop.bounds, loop.accumulation = max_batch_size, local_bsz_bounds, gradient_accumulation
        loop.train()

    batch_size = property(lambda self: self._elastic.batch_size)
    training = property(lambda self: self._elastic.training)
    current_local_bsz = property(lambda self: self._elastic.current_local_bsz if Loop.current is self._elastic else None)
    accumulation_steps = property(lambda self: self._elastic.accumulation_steps)
    current_batch_size = property(lambda self: self._elastic.current_batch_size if Loop.current is self._elastic else None)

    def to_tensorboard(self, writer, global_step, tag_prefix=""):
        prefix = tag_prefix + "/" if tag_prefix and not tag_prefix.endswith("/") else tag_prefix
        writer.add_scalar(prefix + "Total_Batch_Size", self._elastic.current_batch_size, global_step)
        writer.add_scalar(prefix + "Local_Batch_Size", self._elastic.current_local_bsz, global_step)
        writer.add_scalar(prefix + "Accumulation_Steps", self._elastic.accumulation_steps, global_step)

    def __len__(self):
        total, _ = self._elastic.micro_sizes()
        length = len(self.dataset)
        return length // total if self.drop_last else math.ceil(length / total)

    def __iter__(self):
        with self._elastic.running() as to_run:
            if to_run:
                yield from self._batches()

    def _batches(self):
        loop = self._elastic
        last = None
        while not self._ended():
            loop.adapt()
            stream = self._stream()
            for step in stream:
                if loop.agree():
                    break  # with another batch size or in another group, from the cursor on
                loop.begin_step(step.step)
                for index, (own, batch) in enumerate(step.micros):
                    if own == 0:
                        # Nothing is left for this worker, but the others need it for the average: its weight is 0.
                        if not loop.may_train():
                            continue
                        if last is not None:
                            batch = last
                        elif batch is None:
                            batch = step.stand_in()
                    last = batch
                    loop.begin_micro(step.step, index, own)
                    yield batch
                    if loop.dropped:
                        break
                if loop.end_step():
                    break
                if self._ended_by_progress():
                    break
            else:
                loop.state.exhausted = stream.is_all

    def _ended_by_progress(self):
        loop, epoch = self._elastic, current_epoch()
        if not (epochs_end_by_progress and loop.autoscales and loop.training and epoch is not None):
            return False
        if self._iterable:
            return False
        return profile.current().progress >= len(self.dataset) * (epoch + 1) / loop.batch_size

    def _ended(self):
        loop = self._elastic
        if self._iterable:
            return loop.state.exhausted
        length = len(self.dataset)
        if epochs_end_by_progress and loop.autoscales and loop.training and current_epoch() is not None:
            return self._ended_by_progress() or length == 0
        left = length - loop.state.cursor
        return left <= 0 or (self.drop_last and left < loop.micro_sizes()[0])

    def _stream(self):
        return _IterableSteps(self) if self._iterable else _MapSteps(self)


class _Step:
    """One optimizer step of this worker: `step` as planned for the group, `micros` as (own samples, batch)."""

    def __init__(self, step, micros, stand_in):
        self.step, self.micros, self.stand_in = step, micros, stand_in


class _MapSteps:
    """Steps from the cursor to the end of the pass, of a dataset with indices."""

    is_all = False  # the cursor tells whether the pass is over

    def __init__(self, loader):
        self._loader = loader

    def __iter__(self):
        loader, loop = self._loader, self._loader._elastic
        length = len(loader.dataset)
        number, base = divmod(loop.state.cursor, length)
        order = plan.permutation(length, loader.shuffle, loader.seed, current_epoch() or 0, number)
        total, count = loop.micro_sizes()
        steps = list(plan.steps(length, base, total, count, loader.drop_last))
        if not steps:  # the rest is dropped
            loop.state.cursor += length - base
            return
        rank, replicas = env.rank(), env.world_size()
        shares = [[plan.share(micro, rank, replicas) for micro in step] for step in steps]
        indices = [[order[i] for i in range(first, first + own)] for step in shares for first, own in step if own]
        batches = iter(DataLoader(loader.dataset, batch_sampler=indices, **loader._options))

        def stand_in(step):
            one = DataLoader(loader.dataset, batch_sampler=[[order[step[0].start]]], **_alone(loader._options))
            return next(iter(one))

        for step, own_shares in zip(steps, shares):
            micros = ((own, next(batches) if own else None) for _, own in own_shares)
            yield _Step(step, micros, lambda step=step: stand_in(step))


def _alone(options):
    kept = ("collate_fn", "pin_memory")
    return {key: value for key, value in options.items() if key in kept}


class _StreamShare(IterableDataset):
    """What one worker keeps of a stream that all of them read: (samples of the group, own, the samples) by micro-step."""

    def __init__(self, dataset, skip, total, rank, replicas, collate):
        self.dataset, self.skip, self.total = dataset, skip, total
        self.rank, self.replicas, self.collate = rank, replicas, collate

    def __iter__(self):
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


class _IterableSteps:
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
            made = _Step(micros, pending, lambda: None)
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
