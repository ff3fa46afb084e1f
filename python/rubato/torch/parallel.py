"""AdaptiveDataParallel: DistributedDataParallel that measures its gradients and follows the batch size."""
import collections
import contextlib
import time
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel, distributed

from rubato import checkpoint, env, goodput, plain
from rubato import group as groups
from rubato.torch import memory, profile
from rubato.torch.data import Loop, current_dataloader
from rubato.torch.scaling_rules import AdamScale, AdaScale
from rubato.torch.statistics import GradientStatistics, starts_pair, steps_per_sample

_SEED_RANGE = 1 << 62


class AdaptiveDataParallel(torch.nn.Module):
    """Wraps `model` as DistributedDataParallel does, and makes `optimizer` elastic:

    - its learning rate is multiplied by what `scaling_rule` says of the batch size in use (AdaScale by default,
      AdamScale for optimizers of Adam's kind);
    - with gradient accumulation its `step` and `zero_grad` do nothing but at an update's end and beginning;
    - model, optimizer, `lr_scheduler` and `mp_scaler` (a GradScaler) are saved and restored.

    `name` tells several instances apart; further arguments are DistributedDataParallel's.
    """

    def __init__(self, model, optimizer, lr_scheduler=None, mp_scaler=None, scaling_rule=None,
                 name="adaptdl-dataparallel", **ddp_options):
        super().__init__()
        if not dist.is_initialized():
            raise RuntimeError("call rubato.torch.init_process_group(backend) before AdaptiveDataParallel")
        self.module = model
        self.optimizer = optimizer
        self._scaler = mp_scaler
        self.scaling_rule = scaling_rule or (AdamScale() if _is_adam(optimizer) else AdaScale())
        self.statistics = GradientStatistics(optimizer, preconditioned=isinstance(self.scaling_rule, AdamScale))
        self._on_gpu = any(parameter.is_cuda for parameter in model.parameters())
        self.gain = 1.0
        self.lr_factor = 1.0
        self._began = self._gradients_ready = None  # moments of the micro-step under way
        self._timed = collections.deque(maxlen=8)  # micro-steps whose moments a GPU may not have passed yet
        self._sample = 0  # how many steps the sample of this one stands for
        self._state = _ModelState(name, self, lr_scheduler)
        checkpoint.load_state(self._state)
        self._ddp_options = ddp_options
        self._ddp = []  # in a list: not a module of this one
        self._shared = False  # this worker's parameters are those of the group
        self._lost = False  # gradients of the step under way: a worker died while they were exchanged
        Loop.models.add(self)
        memory.guard_backward()
        if groups.current() is None:
            self._build()
        else:  # with the first step in each group: until then nobody waits for us
            _when_left(groups.current(), self)
        self._patch_optimizer()
        if lr_scheduler is not None:
            _skip_dropped_steps(lr_scheduler)
        if mp_scaler is not None:
            self._patch_scaler()
        self.scaling_rule.initialize(self, optimizer)

    @property
    def progress(self):
        return profile.current().progress

    def init_batch_size(self):
        loop = current_dataloader()
        return loop.batch_size if loop else profile.current().init_batch_size

    def forward(self, *args, **kwargs):
        if not (self.training and torch.is_grad_enabled()):
            return self.module(*args, **kwargs)  # no collective: loops that only evaluate may differ in length
        loop = current_dataloader()
        try:
            return self._forward_in_group(loop, args, kwargs)
        except RuntimeError as error:
            if not memory.is_exhausted(error) or not memory.give_up(loop, error):
                raise
        with torch.no_grad():  # needs far less; the step is dropped, but the script goes on to its end
            return self.module(*args, **kwargs)

    def _forward_in_group(self, loop, args, kwargs):
        if groups.current() is None:
            return self._forward(loop, args, kwargs)
        try:
            if groups.broken():
                raise RuntimeError("a worker was lost")
            return self._forward(loop, args, kwargs)
        except RuntimeError as error:
            if memory.is_exhausted(error):
                raise
            output = self.module(*args, **kwargs)  # where the model itself is wrong, this throws again
            groups.failed(error)
            self._lost = True
            return output

    def _forward(self, loop, args, kwargs):
        first = not self._ddp
        if first:
            self._build()
        self._ddp[0].require_backward_grad_sync = loop is None or loop.is_optim_step()
        timed = loop is not None and loop.autoscales and loop.regular and not first
        self._began = _Moment(self._on_gpu) if timed else None
        return self._ddp[0](*args, **kwargs)

    def _build(self):
        with _without_first_exchange() if self._all_shared() else contextlib.nullcontext():
            ddp = DistributedDataParallel(self.module, **self._ddp_options)
        ddp.register_comm_hook(None, self._exchange)
        self._ddp = [ddp]
        self._shared = True

    def _all_shared(self):
        """Whether nobody needs the parameters and buffers that DistributedDataParallel sends at first."""
        planned = groups.current()
        if planned is None or dist.get_world_size() == 1:
            return False
        shared = torch.tensor([self._shared], dtype=torch.int32)
        dist.all_reduce(shared, op=dist.ReduceOp.MIN, group=planned.control_group())
        return bool(shared)

    def lose_step(self):
        """Its gradients will not be there: the optimizer does nothing."""
        self._lost = True
        self._ddp = []  # half through a pass, it is of no use any more

    def begin_anew(self):
        """After a step that was dropped."""
        self._lost = False

    def leave_group(self):
        """An old DistributedDataParallel would go on averaging in the old group, without a word."""
        self._ddp = []
        self._lost = False
        self.forget_gradients()
        self._began = self._gradients_ready = None
        self._timed.clear()
        return self.statistics.leave_group()

    # While gradients are on their way --------------------------------------------------------------------------------

    def _exchange(self, _state, bucket):
        """The hook. Where a worker is lost, backward() ends as always; the gradients are of no use, and not used."""
        planned = groups.current()
        if planned is None:
            return self._average(bucket)
        generation, flat = planned.generation, bucket.buffer()

        def checked(future):
            try:
                return future.value()
            except RuntimeError as error:
                self._lost = True
                groups.failed(error, generation)
                return flat

        try:
            return self._average(bucket).then(checked)
        except RuntimeError as error:
            self._lost = True
            groups.failed(error, generation)
            done = torch.futures.Future()
            done.set_result(flat)
            return done

    def _average(self, bucket):
        loop = current_dataloader()
        flat = bucket.buffer()
        if loop is not None and loop.weight != 1.0:
            flat.mul_(loop.weight)
        if bucket.is_last() and self._began:
            self._gradients_ready = _Moment(self._on_gpu)
        step = profile.current().steps
        regular = loop is not None and loop.regular
        self._sample = steps_per_sample(step) if regular else 0
        replicas = dist.get_world_size()
        if replicas == 1:
            self._measure_alone(bucket, regular and starts_pair(step))
            done = torch.futures.Future()
            done.set_result(flat)
            return done
        if self._sample:
            self.statistics.add_local(bucket)
        flat.div_(replicas)
        averaged = dist.all_reduce(flat, async_op=True).get_future()
        return averaged.then(self._measure_total(bucket) if self._sample else lambda future: future.value()[0])

    def _measure_alone(self, bucket, keep):
        if self._sample:
            self.statistics.add_alone(bucket)
        if keep:
            self.statistics.keep(bucket, bucket.buffer().clone())

    def _measure_total(self, bucket):
        def measure(future):
            result = future.value()[0]
            self.statistics.add_total(bucket, result)
            return result

        return measure

    # Around the optimizer's step ---------------------------------------------------------------------------------------

    def _patch_optimizer(self):
        optimizer, step, zero_grad = self.optimizer, self.optimizer.step, self.optimizer.zero_grad

        def adaptive_step(*args, **kwargs):
            loop = current_dataloader()
            if self._lost:
                self._drop(loop)
                return None
            if loop is not None and not loop.is_optim_step():
                self._measure_times(loop)
                return None
            return self._update(loop, lambda: step(*args, **kwargs), zero_grad)

        def adaptive_zero_grad(*args, **kwargs):
            loop = current_dataloader()
            if loop is None or loop.accumulation_steps == 0:
                zero_grad(*args, **kwargs)

        # Or a scheduler warns that somebody has replaced what it counts; what it counts is still called.
        adaptive_step._with_counter = adaptive_step._wrapped_by_lr_sched = True
        optimizer.step, optimizer.zero_grad = adaptive_step, adaptive_zero_grad

    def _patch_scaler(self):
        """A scaler must not look at gradients that are only half accumulated."""

        def at_updates_only(call):
            def wrapped(*args, **kwargs):
                loop = current_dataloader()
                if self._lost:
                    self._drop(loop)
                    return None
                if loop is not None and not loop.is_optim_step():
                    return None
                return call(*args, **kwargs)

            return wrapped

        for name in ("step", "unscale_", "update"):
            setattr(self._scaler, name, at_updates_only(getattr(self._scaler, name)))

    def _drop(self, loop):
        """The step under way counts nowhere."""
        if loop is not None:
            loop.dropped = True
        self.forget_gradients()

    def forget_gradients(self):
        """Between two steps: with accumulation the script's zero_grad() does nothing, and old ones would be added to."""
        for parameter in self.module.parameters():
            parameter.grad = None

    def _update(self, loop, step, zero_grad):
        scale = 1.0
        if loop is not None:
            loop.train()
            self._measure_times(loop)
            scale = loop.current_batch_size / loop.batch_size
            if self._sample:
                self._exchange_statistics(scale)
        groups = self.optimizer.param_groups
        averages = self.statistics.averages
        self.gain = averages.gain(scale) if averages.known() else 1.0
        factors = self.scaling_rule.factors(scale, len(groups)) if scale != 1.0 and averages.known() else [1.0] * len(groups)
        self.lr_factor = sum(factors) / len(factors)
        rates = [group["lr"] for group in groups]
        for group, factor in zip(groups, factors):
            group["lr"] = group["lr"] * factor
        try:
            result = step()
        finally:
            for group, rate in zip(groups, rates):
                group["lr"] = rate
        if loop is not None:
            self._count_step(loop, zero_grad)
        return result

    def _exchange_statistics(self, scale):
        try:
            self.statistics.step_ended(dist.get_world_size(), scale, self._loss_scale(), self._sample)
        except RuntimeError as error:  # the gradients themselves are complete: the step counts
            if not groups.failed(error):
                raise

    def _count_step(self, loop, zero_grad):
        if loop.accumulation_steps > 0:
            zero_grad()
        job = profile.current()
        job.step_done(self.gain)
        loop.count_samples()
        if groups.current() is not None:
            groups.current().count_step()
        averages = self.statistics.averages
        if averages.known():
            job.grad_params = goodput.GradParams(sum(averages.sqr()), sum(averages.var()))
        job.report()

    def _loss_scale(self):
        return float(self._scaler.get_scale()) if self._scaler is not None else 1.0

    def _measure_times(self, loop):
        """Of a micro-step that ends now. Never waits for a GPU: what it has not done yet is read at a later step."""
        if self._began is not None:
            exchanged = self._gradients_ready if loop.is_optim_step() and dist.get_world_size() > 1 else None
            self._timed.append((loop, loop.current_local_bsz, self._began, exchanged, _Moment(self._on_gpu)))
        self._began = self._gradients_ready = None
        while self._timed and self._timed[0][-1].passed():
            loop, atomic, began, exchanged, ended = self._timed.popleft()
            whole = ended.since(began)
            own = exchanged.since(began) if exchanged else whole
            profile.current().add_times(atomic, own, whole if loop.accumulation_steps == 0 or exchanged else None)

    def metrics(self):
        loop, averages = current_dataloader(), self.statistics.averages
        known = {"workers": env.world_size(), "gain": self.gain, "lr_factor": self.lr_factor, "progress": self.progress,
                 "gradient_sqr": sum(averages.sqr()), "gradient_var": sum(averages.var())}
        return known if loop is None else {**known, "batch_size": loop.current_batch_size,
                                           "local_batch_size": loop.current_local_bsz,
                                           "accumulation_steps": loop.accumulation_steps}

    def to_tensorboard(self, writer, global_step, tag_prefix=""):
        prefix = tag_prefix + "/" if tag_prefix and not tag_prefix.endswith("/") else tag_prefix
        averages = self.statistics.averages
        writer.add_scalar(prefix + "Gradient_Norm_Sqr", sum(averages.sqr()), global_step)
        writer.add_scalar(prefix + "Gradient_Variance", sum(averages.var()), global_step)
        writer.add_scalar(prefix + "Gain", self.gain, global_step)
        writer.add_scalar(prefix + "Learning_Rate_Factor", self.lr_factor, global_step)


def _when_left(planned, parallel):
    itself = weakref.ref(parallel)

    def leave():
        return itself().leave_group() if itself() is not None else ()

    planned.on_leave(leave)


def _skip_dropped_steps(lr_scheduler):
    """A scheduler that is stepped with each batch must not count a step that is taken again."""
    kind = type(lr_scheduler)

    class Elastic(kind):
        def step(self, *args, **kwargs):
            loop = current_dataloader()
            if loop is None or not loop.dropped:
                return super().step(*args, **kwargs)

    Elastic.__name__, Elastic.__qualname__, Elastic.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    lr_scheduler.__class__ = Elastic


@contextlib.contextmanager
def _without_first_exchange():
    """All workers have the same parameters already. Where PyTorch has changed, they are sent once more than needed."""
    name = "_sync_module_states"
    real = getattr(distributed, name, None)
    if real is None:
        yield
        return
    setattr(distributed, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        setattr(distributed, name, real)


def _is_adam(optimizer):
    return all("betas" in group for group in optimizer.param_groups)


class _Moment:
    """A point in time; on a GPU, in the time of the work that was given to it."""

    def __init__(self, on_gpu):
        self._event = torch.cuda.Event(enable_timing=True) if on_gpu else None
        if on_gpu:
            self._event.record()
        else:
            self._time = time.perf_counter()

    def passed(self):
        return self._event is None or self._event.query()

    def since(self, earlier):
        """Seconds. Both must have passed."""
        if self._event is None:
            return self._time - earlier._time
        return earlier._event.elapsed_time(self._event) / 1e3


class _ModelState(checkpoint.State):
    def __init__(self, name, parallel, lr_scheduler):
        super().__init__(name)
        self._parallel, self._lr_scheduler = [parallel], lr_scheduler

    def _parts(self):
        parallel = self._parallel[0]
        parts = {"model": parallel.module, "optimizer": parallel.optimizer, "lr_scheduler": self._lr_scheduler,
                 "mp_scaler": parallel._scaler, "statistics": parallel.statistics.averages}
        return {key: part for key, part in parts.items() if part is not None}

    def snapshot(self):
        saved = {key: part.state_dict() for key, part in self._parts().items()}
        saved["seed"] = torch.initial_seed() % _SEED_RANGE
        saved["steps"] = profile.current().steps
        return saved

    def save(self, fileobj):
        plain.dump(self.snapshot(), fileobj)

    def load(self, fileobj):
        self._take(plain.load(fileobj))

    def restore(self, value):
        self._take(value)
        self._parallel[0]._shared = True

    def _take(self, saved):
        for key, part in self._parts().items():
            if key in saved:
                part.load_state_dict(saved[key])
        # The same sequence of lives gives the same numbers; two workers never the same ones.
        torch.manual_seed((saved["seed"] + saved["steps"] * 1_000_003 + env.rank() * 7_919) % _SEED_RANGE)
