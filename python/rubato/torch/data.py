"""Data loaders that survive restarts, changes of size and changes of batch size: each sample of a pass counts once."""
import collections
import contextlib
import json
import math
import sys
import time
import warnings
import weakref

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from rubato import _signal, checkpoint, collective, env, group
from rubato.torch import plan, profile
from rubato.torch.epoch import current_epoch, ended_loops, keep_state, may_learn, note_ended_loop, note_learning, \
    state_name
from rubato.torch.order import DrawnOrder, Order
from rubato.torch.sampler import ElasticSampler
from rubato.torch.steps import IterableSteps, MapSteps

CHECKPOINT_EVERY_S = 300.0
ADAPT_EVERY_STEPS = 100
OWED_MAX = 64  # batches that a script may add up for one update of its own: until then the group does not change
# AdaptDL ends an autoscaled epoch by progress, not when the data are through; the module `adaptdl` sets this.
epochs_end_by_progress = False
# AdaptDL rounds a batch up to equal parts for all workers; the module `adaptdl` sets this.
equal_shares = False

_STOP, _SAVE, _ADAPT, _GENERATION = range(4)
_flags = None
KIND = "adaptdl-dataloader"
step_listeners = weakref.WeakSet()  # whoever notes something in a step is told (`commit`) whether it counted


def forget_group():
    """What was exchanged in a group that is left. Returns what is under way there."""
    global _flags
    works = _flags.under_way() if _flags is not None else []
    _flags = None
    return works


def current_dataloader():
    """The loop that is being run, as an object that knows its batch sizes, or None."""
    return Loop.current


class _LoopState(checkpoint.State):
    def __init__(self, name):
        super().__init__(name)
        self.cursor = 0  # samples that the group has taken in this loop; passes follow each other
        self.last_position = {}  # epoch -> the last loop position of it that ended: in checkpoints of Rubato 0.1
        self.exhausted = False  # a stream came to its end; its loop not yet
        self.trains = False
        self.end_index = 0  # for loaders of one's own, which may note there where their loop ends

    def save(self, fileobj):
        state = {"cursor": self.cursor, "exhausted": self.exhausted, "trains": self.trains, "end_index": self.end_index}
        fileobj.write(json.dumps(state).encode())

    def load(self, fileobj):
        state = json.loads(fileobj.read())
        self.cursor = int(state["cursor"])
        self.last_position = {epoch: position for epoch, position in state.get("last_position", ())}
        self.exhausted, self.trains = state.get("exhausted", False), state.get("trains", False)
        self.end_index = state.get("end_index", 0)


def _forget(state):
    if checkpoint.is_registered(state):
        checkpoint.unregister(state.name)


def _changes():
    planned = group.current()
    return planned.changes if planned else 0


class Loop:
    """The elastic part of a data loader: cursor, batch sizes, and what the group agrees on after each step."""

    current = None
    _training = None  # a weak reference
    _all = weakref.WeakSet()  # the loops of all loaders
    _positions = collections.Counter()  # epoch -> loops that ended so far in it, of all loaders
    models = weakref.WeakSet()  # the AdaptiveDataParallels
    sharded = weakref.WeakSet()  # models whose shards all workers have together
    pass_samples = None  # of one epoch; None: nobody knows
    _just_saved = False  # at the last `agree`, of whichever loop; alike on all workers
    # Batches since the first one whose gradients the script has not given to an optimizer yet, also over the end of a loop;
    # alike on all workers, so that all or none of them ask the others in `agree`.
    _owed = 0
    _owed_in = 0  # the group that it is valid for: gradients go with the group

    def __init__(self, batch_size):
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number above 0, not {batch_size!r}")
        if Loop.current is not None:
            raise RuntimeError("an adaptive data loader cannot be made inside a loop over another one: after a restart in "
                               "the middle of the loop it would be another one. Make it before the loop")
        self.batch_size = batch_size
        self.max_batch_size = None
        self.bounds = None
        self.accumulation = False
        self.batch = None  # goodput.Batch in use while autoscaling
        self._chosen_for = 0  # which of this worker's groups
        self.equal_shares = equal_shares
        self.learns = False  # gradients of its batches were averaged
        self.weight = 1.0  # of this worker's gradient in the step under way
        self.micro = 0  # the number of the micro-step under way
        self.optim_step = True  # it ends with an update
        self.regular = True  # a full step: its gradients may be measured
        self.dropped = False  # the step under way was broken by a lost worker: it counts nowhere, and is taken again
        self.counted = False  # the step under way, by the update of the first of its models
        self.micro_count = 1  # of the step under way
        self.exchanged = set()  # ids of the models whose gradients were averaged in this micro-step
        self.passed_by = set()  # of those that a worker alone has called without any exchange
        self.updated = set()  # of those whose optimizer was called in it
        self._size = 0  # samples of the step under way that the cursor has not passed yet
        self._saved_at = time.monotonic()
        self._prepared = False  # for the next checkpoint
        self._warned = False  # of a batch below the first one
        self.state = _LoopState(state_name(KIND))
        checkpoint.load_first(self.state)
        Loop._all.add(self)
        # No loop can be run over a loader that is gone: how many have ended is noted elsewhere, and nothing else remains.
        weakref.finalize(self, _forget, self.state).atexit = False

    def autoscale_batch_size(self, max_batch_size, local_bsz_bounds=None, gradient_accumulation=False):
        """Lets the batch size grow to `max_batch_size` where that learns faster; `local_bsz_bounds` are a worker's."""
        if not isinstance(max_batch_size, int) or max_batch_size < self.batch_size:
            raise ValueError(f"max_batch_size must be a whole number of at least {self.batch_size}")
        low, high = local_bsz_bounds or (None, None)
        # Scripts write `batch_size / 4`; a batch is of whole samples.
        low, high = low if low is None else math.ceil(low), high if high is None else math.floor(high)
        if low is not None and high is not None and low > high:
            raise ValueError(f"local_bsz_bounds {local_bsz_bounds!r}: the lower one is above the other")
        if (low is not None and low > self.batch_size) or (high is not None and high < 1):
            raise ValueError(f"local_bsz_bounds {local_bsz_bounds!r} leave out the batch size {self.batch_size}")
        self.bounds = (low, high) if local_bsz_bounds else None
        self.max_batch_size, self.accumulation = max_batch_size, gradient_accumulation
        self.train()

    def train(self):
        """Makes this the loop whose steps train: the first one whose batches see a backward pass, or that autoscales."""
        if Loop._trainer() is None:
            Loop._training = weakref.ref(self)
            self.state.trains = True
        if self.training:
            profile.current().configure(self.batch_size, self.max_batch_size, self.bounds, self.accumulation)

    @staticmethod
    def _trainer():
        """The loop that trains, if it is known; one that was made in an epoch that is over, or is gone, does no more."""
        known = Loop._training() if Loop._training is not None else None
        if known is not None and checkpoint.is_registered(known.state):
            return known
        # Another worker, or an earlier life, may have found out: a newcomer's first loop may be one that evaluates.
        found = [one for one in list(Loop._all) if one.state.trains and checkpoint.is_registered(one.state)]
        if not found:
            return None
        Loop._training = weakref.ref(found[0])
        return found[0]

    @property
    def training(self):
        return Loop._trainer() is self

    def may_learn(self):
        """Whether a model that is called in evaluation mode, with gradients, may be trained here: with its batch
        normalisations frozen, or where a script forgets `model.train()`. Else it is being evaluated."""
        return self.learns or self.training or (Loop._trainer() is None and may_learn(self.state))

    def note_learning(self):
        if not self.learns:
            self.learns = True
            note_learning(self.state)

    def may_train(self):
        """Whether a worker without samples must take part all the same: the others would wait for its gradients."""
        if self.learns or self.training:
            return True
        there = bool(Loop.models) or bool(Loop.sharded)
        return there and torch.is_grad_enabled() and (self.may_learn() or any(model.training for model in Loop.models))

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
        total, count = self.micro_sizes()
        return total * count

    @property
    def current_index(self):
        return self.state.cursor if Loop.current is self else None

    @property
    def local_bsz_bounds(self):
        return self.bounds

    def is_optim_step(self):
        return self.optim_step

    def is_accum_step(self):
        return not self.optim_step

    def micro_sizes(self):
        """(samples of the group a micro-step, micro-steps an update)."""
        if self.batch is None and not self.equal_shares:
            return self.batch_size, 1
        return self.current_local_bsz * env.world_size(), self.accumulation_steps + 1

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
        self._warn_of_small()

    def _warn_of_small(self):
        """Not where the bounds are given: how many workers there will be, and are left, nobody knows there."""
        size = self.current_batch_size
        if size < self.batch_size and not self._warned and env.rank() == 0:
            self._warned = True
            warnings.warn(f"local_bsz_bounds {self.bounds!r} and {env.world_size()} workers give a batch of {size}, not of "
                          f"{self.batch_size}: the learning rate follows. Allow gradient_accumulation to keep it")

    def agree_when_updated(self):
        """As `agree`, but not while the script adds gradients up: those of a group that is left, or of a process that
        ends, are given up, and their samples would count nowhere."""
        if Loop._owed_in != _changes():
            Loop._owed, Loop._owed_in = 0, _changes()
        return (Loop._owed == 0 or Loop._owed >= OWED_MAX or group.broken()) and self.agree()

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
        due = rank0 and now - self._saved_at > CHECKPOINT_EVERY_S and not checkpoint.is_writing()  # a disk may be slow
        if rank0 and not self._prepared and now - self._saved_at > CHECKPOINT_EVERY_S / 2:
            self._prepared = True
            checkpoint.prepare()
        steps = profile.current().steps
        adapt = rank0 and self.autoscales and self.training and steps % ADAPT_EVERY_STEPS == ADAPT_EVERY_STEPS - 1
        return _flags.exchange([float(_signal.stop_requested()), float(due), float(adapt), float(generation)])

    def _act(self, flags):
        try:
            if flags[_STOP]:
                checkpoint.save_all_states()
                sys.exit(143)  # as a process that SIGTERM ended; launchers take it for "asked to go", not for failed
            # Flags are those of the call before: one that was raised before a save was carried out comes once more.
            save = bool(flags[_SAVE]) and not Loop._just_saved
            Loop._just_saved = save
            if save:
                self._saved_at, self._prepared = time.monotonic(), False
                checkpoint.save_all_states(background=True)
        except collective.Cancelled:
            return True  # a worker was lost meanwhile; whoever wants it asks again
        return bool(flags[_ADAPT])

    def to_tensorboard(self, writer, global_step, tag_prefix=""):
        if env.rank() != 0:
            return
        prefix = tag_prefix + "/" if tag_prefix and not tag_prefix.endswith("/") else tag_prefix
        writer.add_scalar(prefix + "Total_Batch_Size", self.current_batch_size, global_step)
        writer.add_scalar(prefix + "Local_Batch_Size", self.current_local_bsz, global_step)
        writer.add_scalar(prefix + "Accumulation_Steps", self.accumulation_steps, global_step)

    @contextlib.contextmanager
    def running(self):
        """Around one whole loop. Gives False when this loop ended before the restart: it is passed over then."""
        if Loop.current is not None:
            raise RuntimeError("overlapping loops over adaptive data loaders: end the one before first")
        group.join()
        keep_state(KIND, self.state)
        epoch = current_epoch()
        position = Loop._positions[epoch]
        if position < ended_loops(epoch) or position <= self.state.last_position.get(epoch, -1):
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
        self.state.cursor = self.state.end_index = 0
        self.state.exhausted = False
        note_ended_loop(epoch, position)
        Loop._positions[epoch] += 1

    def begin_step(self, step):
        self.dropped = self.counted = False
        self._size = sum(micro.total for micro in step)

    def count_samples(self):
        """The samples of the step under way have counted: with the optimizer's update, or at the end of the step."""
        self.state.cursor += self._size
        self._size = 0

    def end_step(self):
        """True when the step was dropped; it is to be taken again then, unless another member has completed it."""
        if not self.was_broken():
            self._count_owed()
            self.count_samples()
            self._commit(True)
            return False
        steps = profile.current().steps
        self.agree()
        Loop._owed = 0
        self._commit(self.counted or profile.current().steps > steps)  # one of several models may have been updated
        for model in list(Loop.models):
            model.begin_anew()
        self.dropped, self.batch = False, None
        return True

    @staticmethod
    def added():
        """Batches whose gradients the script had added up when the group was left."""
        return Loop._owed

    @staticmethod
    def give_up_added():
        Loop._owed = 0

    def was_broken(self):
        """Also of a batch whose gradients only add up: no optimizer was called that could have dropped the step."""
        self.dropped = self.dropped or any(model._lost for model in list(Loop.models))
        return self.dropped

    def _count_owed(self):
        """After a batch. In one in which the group changed, the script's own collectives have met: nothing is left then."""
        owes = (self.exchanged or self.passed_by or Loop._owed) and not self.updated and Loop._owed_in == _changes()
        Loop._owed = Loop._owed + 1 if owes else 0

    @staticmethod
    def _commit(counted):
        for one in list(step_listeners):
            one.commit(counted)

    def begin_micro(self, step, index, own):
        replicas = env.world_size()
        total, count = self.micro_sizes()
        self.enter_micro(index, len(step))
        self.weight = plan.weight(step, own, replicas)
        self.regular = len(step) == count and step[0].total == total

    def enter_micro(self, index, count):
        self.micro, self.micro_count, self.optim_step = index, count, index == count - 1
        self.exchanged.clear()
        self.passed_by.clear()
        self.updated.clear()


class AdaptiveDataLoader(DataLoader):
    """A DataLoader whose `batch_size` is that of the whole group, shared out among however many workers there are.

    Takes DataLoader's other arguments but `batch_sampler`. A `sampler` is that of the whole group: it is drawn whole, by
    each worker, with the same random numbers; each of its entries counts once. Map-style datasets are read where this worker's
    share is; of an iterable dataset each worker reads the whole stream and keeps its share. After a change it is read
    from its beginning again, unless the dataset can begin elsewhere: `iter_from(samples)` leaves them out.
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, seed=0, **kwargs):
        if kwargs.pop("batch_sampler", None) is not None:
            raise ValueError("batch_sampler does not go with AdaptiveDataLoader: it decides itself who reads what")
        sampler = kwargs.pop("sampler", None)
        _check_sampler(sampler, shuffle)
        self._sampled = sampler is not None  # by the script
        self._drawn = (None, None)  # (numbers of the pass, its order)
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable and shuffle:
            raise ValueError("an iterable dataset cannot be shuffled here: let it shuffle itself, the same on each worker")
        if sampler is None and not self._iterable:
            sampler = ElasticSampler(dataset, shuffle)  # to look at: `plan` shares samples out
        super().__init__(dataset, batch_size, sampler=sampler, **kwargs)
        self.shuffle, self.seed = shuffle, seed
        self._options = {key: value for key, value in kwargs.items() if key != "drop_last"}
        self._elastic = Loop(batch_size)

    def autoscale_batch_size(self, max_batch_size, local_bsz_bounds=None, gradient_accumulation=False):
        """Lets the batch size grow to `max_batch_size` where that learns faster; `local_bsz_bounds` are a worker's."""
        self._elastic.autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)

    training = property(lambda self: self._elastic.training)
    current_local_bsz = property(lambda self: self._elastic.current_local_bsz if Loop.current is self._elastic else None)
    accumulation_steps = property(lambda self: self._elastic.accumulation_steps)
    current_batch_size = property(lambda self: self._elastic.current_batch_size if Loop.current is self._elastic else None)

    def to_tensorboard(self, writer, global_step, tag_prefix=""):
        self._elastic.to_tensorboard(writer, global_step, tag_prefix)

    def __len__(self):
        total, _ = self._elastic.micro_sizes()
        length = self._length()
        return length // total if self.drop_last else math.ceil(length / total)

    def __iter__(self):
        with self._elastic.running() as to_run:
            if to_run:
                yield from self._batches()

    def _batches(self):
        loop = self._elastic
        loop.pass_samples = None if self._iterable else self._length()
        last = None
        while not self._ended():
            loop.adapt()
            stream = self._stream()
            for step in stream:
                if loop.agree_when_updated():
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

    def _ends_by_progress(self):
        loop = self._elastic
        by_progress = epochs_end_by_progress and loop.autoscales and loop.training and current_epoch() is not None
        return by_progress and not self._iterable

    def _ended_by_progress(self):
        if not self._ends_by_progress():
            return False
        return profile.current().progress >= self._length() * (current_epoch() + 1) / self._elastic.batch_size

    def _ended(self):
        loop = self._elastic
        if self._iterable:
            return loop.state.exhausted
        length = self._length()
        if self._ends_by_progress():
            return self._ended_by_progress() or length == 0
        left = length - loop.state.cursor
        return left <= 0 or (self.drop_last and left < loop.micro_sizes()[0])

    def _sections(self):
        """Where parts of a pass end: no batch has samples of two of them."""
        return (self._length(),)

    def _length(self):
        """Samples of a pass."""
        return len(self.sampler if self._sampled else self.dataset)

    def _order(self, number):
        epoch = current_epoch()
        if epoch is None:  # a loop of the script's own counts its epochs; each of its passes has an order of its own
            epoch = Loop._positions[None]
        if not self._sampled:
            return Order(self._length(), self.shuffle, self.seed, epoch, number)
        if self._drawn[0] != (epoch, number):
            self._drawn = (epoch, number), DrawnOrder(self.sampler, self.seed, epoch, number)
        return self._drawn[1]

    def _stream(self):
        return IterableSteps(self) if self._iterable else MapSteps(self)


def _check_sampler(sampler, shuffle):
    if isinstance(sampler, DistributedSampler):
        raise ValueError("a DistributedSampler shares samples out among a fixed number of workers: leave it out, and say "
                         "shuffle=True or False. AdaptiveDataLoader shares them out itself")
    if sampler is not None and shuffle:
        raise ValueError("a sampler says the order: it does not go with shuffle=True")
    if sampler is not None and not hasattr(sampler, "__len__"):
        raise ValueError(f"a sampler needs a length, which {type(sampler).__name__} does not have: what has no end is an "
                         "IterableDataset")
