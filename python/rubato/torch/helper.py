"""For data loaders of one's own, by AdaptDL's names. A loader says when a loop and a step begin, and keeps the index:

    class Loader(AdaptiveDataLoaderMixin):
        def __iter__(self):
            with self._elastic.context():
                if self._elastic.skipdone():
                    return                                        # it ended before the restart
                local_bsz = self._elastic._sync_local_bsz()       # of each worker
                while self._elastic.current_index < …:
                    with self._elastic.profile():                 # as often on each worker
                        yield …                                   # what rank and size of this moment say
                        self._elastic.current_index += local_bsz * env.world_size()

When the group or the batch size changes, `profile` ends the generator and the mixin begins it anew, from the index on:
what depends on rank, size or batch size belongs into `__iter__`, not into `__init__`. A step that a lost worker broke is
taken again, and the index is what it was before.
"""
import contextlib
import functools

from rubato.torch.data import Loop


class LoopBeginsAnew(RuntimeError):
    """Inside `profile`: the loop goes on from its index, in another group or with another batch size."""

    def __init__(self):
        super().__init__("the group or the batch size has changed in the middle of a loop: a loader on "
                         "AdaptiveDataLoaderHelper must inherit AdaptiveDataLoaderMixin, which begins it anew")


class AdaptiveDataLoaderHelper(Loop):
    def __init__(self, batch_size=1):
        super().__init__(batch_size)
        self._to_run = False
        self._step_began_at = 0
        self._micros_done = 0  # of the step under way

    @property
    def current_index(self):
        """Samples that all workers together have taken in this loop, or None outside of it."""
        return self.state.cursor if Loop.current is self else None

    @current_index.setter
    def current_index(self, index):
        if Loop.current is self:
            self.state.cursor = index

    @property
    def end_index(self):
        """Of the loader: kept over restarts, 0 when a loop begins."""
        return self.state.end_index

    @end_index.setter
    def end_index(self, index):
        self.state.end_index = index

    def _sync_local_bsz(self):
        """The batch size of each worker from now on. All workers must call it, at the beginning of a loop."""
        self.adapt()
        return self.current_local_bsz

    @contextlib.contextmanager
    def context(self):
        """Around one whole loop."""
        self._micros_done = 0
        with self.running() as self._to_run:
            yield

    def skipdone(self):
        """First thing in `context`: True when this loop ended before the restart."""
        return not self._to_run

    @contextlib.contextmanager
    def profile(self, commit=True):
        """Around each batch, as often on each worker. `commit` is AdaptDL's, and not looked at."""
        if self._micros_done == 0:
            if self.agree_when_updated():
                raise LoopBeginsAnew()
            self.begin_step(())  # the loader moves the index, not we
            self._step_began_at = self.state.cursor
        count = self.accumulation_steps + 1
        self.enter_micro(min(self._micros_done, count - 1), count)
        self.weight, self.regular = 1 / count, True
        yield
        if self.was_broken():
            self.state.cursor = self._step_began_at  # or we get that of a member that has completed the step
            self._micros_done = 0
            self.end_step()
            raise LoopBeginsAnew()
        self._micros_done = 0 if self.optim_step else self._micros_done + 1
        if self.optim_step:
            self.end_step()


class AdaptiveDataLoaderMixin:
    """Gives a loader its `_elastic`, and what scripts ask a loader for."""

    def __init__(self, batch_size):
        self._elastic = AdaptiveDataLoaderHelper(batch_size)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = _begun_anew(cls.__iter__)

    def autoscale_batch_size(self, max_batch_size, local_bsz_bounds=None, gradient_accumulation=False):
        self._elastic.autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)

    training = property(lambda self: self._elastic.training)
    accumulation_steps = property(lambda self: self._elastic.accumulation_steps)

    @property
    def current_local_bsz(self):
        return self._elastic.current_local_bsz if Loop.current is self._elastic else None

    @property
    def current_batch_size(self):
        return self._elastic.current_batch_size if Loop.current is self._elastic else None

    def to_tensorboard(self, writer, global_step, tag_prefix=""):
        self._elastic.to_tensorboard(writer, global_step, tag_prefix)


def _begun_anew(iterate):
    @functools.wraps(iterate)
    def batches(self):
        while True:
            try:
                yield from iterate(self)
                return
            except LoopBeginsAnew:
                pass

    return batches
