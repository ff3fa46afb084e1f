"""AdaptiveDataParallel: DistributedDataParallel that measures its gradients and follows the batch size."""
import collections
import contextlib
import copy
import time
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel, distributed

from rubato import checkpoint, collective, env, goodput, plain
from rubato import group as groups
from rubato.torch import closures, memory, profile, schedules
from rubato.torch.data import Loop, current_dataloader
from rubato.torch.scaling_rules import AdamScale, AdaScale
from rubato.torch.statistics import GradientStatistics, NoiseScale, starts_pair, steps_per_sample

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
        self.gns = NoiseScale(self)
        self._on_gpu = any(parameter.is_cuda for parameter in model.parameters())
        self.gain = 1.0
        self.lr_factor = 1.0
        self._began = self._gradients_ready = None  # moments of the micro-step under way
        self._timed = collections.deque(maxlen=8)  # micro-steps whose moments a GPU may not have passed yet
        self._put_away = []  # gradients of the micro-steps before this one, by parameter
        self._enlarged = []  # (gradient, as it was) of a backward before this one in the same micro-step
        self._exchanging = False  # this backward reaches this model
        self._exchanged = False  # the gradients of the step under way are the averages
        self._warned = False  # of a second step
        self._sample = 0  # how many steps the sample of this one stands for
        self._state = _ModelState(name, self, lr_scheduler)
        checkpoint.load_first(self._state)
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
        zero_grad = self._patch_optimizer()
        if lr_scheduler is not None:
            _skip_dropped_steps(lr_scheduler)
        if mp_scaler is not None:
            self._patch_scaler(zero_grad)
        self.scaling_rule.initialize(self, optimizer)

    @property
    def adascale(self):
        """What `gns` was called in older versions of AdaptDL."""
        return self.gns

    @property
    def progress(self):
        return profile.current().progress

    @property
    def require_backward_grad_sync(self):
        """Whether this batch ends with an update, as DistributedDataParallel and AdaptDL's scaling rules call it."""
        loop = current_dataloader()
        return loop is None or loop.is_optim_step()

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, value):
        """Scripts that accumulate by themselves set DistributedDataParallel's. Gradients are exchanged with each batch."""

    @contextlib.contextmanager
    def no_sync(self):
        """For scripts that accumulate by themselves: as DistributedDataParallel's, but that gradients are exchanged all the
        same, with the weight of each batch's share. The sum is what it would be."""
        yield

    def __deepcopy__(self, memo):
        made = _Copy(copy.deepcopy(self.module, memo))
        return made.train(self.training)

    def __reduce__(self):
        return _Copy, (self.module,)

    def zero_grad(self, *args, **kwargs):
        """The optimizer's: in the middle of an accumulation it keeps what there is."""
        self.optimizer.zero_grad(*args, **kwargs)

    def init_batch_size(self):
        loop = current_dataloader()
        return loop.batch_size if loop else profile.current().init_batch_size

    def forward(self, *args, **kwargs):
        loop = current_dataloader()
        if not (torch.is_grad_enabled() and (self.training or self._learns_in(loop))):
            return self.module(*args, **kwargs)  # no collective: loops that only evaluate may differ in length
        try:
            return self._forward_in_group(loop, args, kwargs)
        except RuntimeError as error:
            if not memory.is_exhausted(error) or not memory.give_up(loop, error):
                raise
        return memory.stand_in(self.module, args, kwargs)  # the step is dropped, but the script goes on to its end

    def _learns_in(self, loop):
        """In evaluation mode. What is wrongly taken for an evaluation is averaged when the optimizer is called."""
        if loop is None:
            return bool(self._ddp) and Loop._trainer() is None
        return loop.may_learn()

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
        passes = loop is not None and self._passes_by(loop)
        if passes:
            loop.passed_by.add(id(self))
        self._ddp[0].require_backward_grad_sync = loop is None or (loop.is_optim_step() and not passes)
        # Other loops' batches are others. A fixed batch is no wish to be sized by goodput: such a job takes the room there is.
        timed = loop is not None and loop.autoscales and loop.regular and loop.training and not first
        self._began = _Moment(self._on_gpu) if timed else None
        if not self.training:  # its buffers stay as they are: no collective, if it should be an evaluation
            self._ddp[0].require_forward_param_sync = False
        return self._ddp[0](*args, **kwargs)

    def _passes_by(self, loop):
        """A step of a worker alone, in which nothing is measured: its gradients are what they are, without any exchange."""
        if not loop.regular or loop.weight != 1.0 or self._ddp_options.get("static_graph") or dist.get_world_size() > 1:
            return False
        step = self._step_number(loop)
        return not steps_per_sample(step) and not starts_pair(step)

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

        def lost(error):
            self._lost = True
            groups.failed(error, generation)
            return flat

        try:
            return self._average(bucket, lost)
        except RuntimeError as error:
            done = torch.futures.Future()
            done.set_result(lost(error))
            return done

    def _average(self, bucket, lost=None):
        """`lost` gives the result where the exchange has failed."""
        loop = current_dataloader()
        flat = bucket.buffer()
        if loop is not None and loop.weight != 1.0:
            flat.mul_(loop.weight)
        if bucket.is_last() and self._began:
            self._gradients_ready = _Moment(self._on_gpu)
        if bucket.index() == 0:
            self._begin_exchange(loop)
        # What comes after the update is another model's: a discriminator that a generator's loss went through.
        regular = loop is not None and loop.regular and id(self) not in loop.updated
        step = self._step_number(loop)
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
        sampled = bool(self._sample)

        def ended(future):
            try:
                result = future.value()[0]
                if sampled:
                    self.statistics.add_total(bucket, result)
                return result
            except RuntimeError as error:
                if lost is None:
                    raise
                return lost(error)

        return averaged.then(ended)

    def _begin_exchange(self, loop):
        """The first bucket of a backward. Of several in one step, the last one has the whole gradient."""
        self._exchanging = self._exchanged = True
        if loop is not None:
            loop.note_learning()
        if loop is not None and id(self) not in loop.updated:
            self.statistics.begin_pass(again=id(self) in loop.exchanged)
            loop.exchanged.add(id(self))

    def _exchange_rest(self, loop):
        """Averages gradients that the hook has not seen: those of a model that was called past this wrapper, or that was
        taken for one that is only evaluated. Only where the optimizer is about to use them."""
        done, self._exchanged = self._exchanged, loop is not None and self._exchanged
        if loop is not None:
            done = id(self) in loop.exchanged
        if done or self._lost or not dist.is_initialized() or dist.get_world_size() == 1:
            return
        try:
            self._average_all(1.0 if loop is None else loop.weight)
        except RuntimeError as error:
            if not groups.failed(error):
                raise
            self._lost = True
        if loop is not None:
            loop.note_learning()
            loop.exchanged.add(id(self))

    def _average_all(self, weight):
        parameters = [one for one in self.module.parameters() if one.requires_grad]
        if not parameters:
            return
        used = torch.tensor([one.grad is not None for one in parameters], dtype=torch.int32)
        dist.all_reduce(used, op=dist.ReduceOp.MAX, group=collective.control_group())
        for parameter in [one for one, by_some in zip(parameters, used.tolist()) if by_some]:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad.mul_(weight / dist.get_world_size()) if weight else parameter.grad.zero_()
            dist.all_reduce(gradient)

    @staticmethod
    def _step_number(loop):
        """Of the step under way; another model's update may have counted it already."""
        return profile.current().steps - (1 if loop is not None and loop.counted else 0)

    def _measure_alone(self, bucket, keep):
        if self._sample:
            self.statistics.add_alone(bucket)
        if keep:
            self.statistics.keep(bucket, bucket.buffer().clone())

    # Around the optimizer's step ---------------------------------------------------------------------------------------

    def _patch_optimizer(self):
        optimizer, step, zero_grad = self.optimizer, self.optimizer.step, self.optimizer.zero_grad

        def adaptive_step(*args, **kwargs):
            loop, closure = current_dataloader(), closures.find(args, kwargs)
            if closure is None and (loop is None or loop.is_optim_step()):
                self._exchange_rest(loop)
            if self._lost:
                self._drop(loop)
                return None
            if loop is not None:
                self._warn_of_second(loop)
            result = None
            if closure is not None:
                result = self._step_with_closure(loop, closure, step, zero_grad, args, kwargs)
            elif loop is not None and not loop.is_optim_step():
                self._measure_times(loop)
            else:
                result = self._update(loop, lambda: step(*args, **kwargs), zero_grad)
            if loop is not None:  # not before: a closure's backward is not late
                loop.updated.add(id(self))
            else:  # between two loops: for what the last one has left
                Loop._owed = 0
            return result

        def adaptive_zero_grad(*args, **kwargs):
            loop = current_dataloader()
            if loop is None or loop.accumulation_steps == 0:
                zero_grad(*args, **kwargs)

        # Or a scheduler warns that somebody has replaced what it counts; what it counts is still called.
        adaptive_step._with_counter = adaptive_step._wrapped_by_lr_sched = True
        optimizer.step, optimizer.zero_grad = adaptive_step, adaptive_zero_grad
        return zero_grad

    def _step_with_closure(self, loop, closure, step, zero_grad, args, kwargs):
        whole = closures.ClosureStep(closure, loop, self.optimizer, lambda: self._lost)
        args, kwargs = whole.arguments(args, kwargs)
        try:
            return self._update(loop, lambda: step(*args, **kwargs), zero_grad)
        except closures.StepLost:
            whole.undo()
            self._drop(loop)
            return None

    def _patch_scaler(self, zero_grad):
        """A scaler must not look at gradients that are only half accumulated."""

        def at_updates_only(call):
            def wrapped(*args, **kwargs):
                loop = current_dataloader()
                if args[:1] == (self.optimizer,) and (loop is None or loop.is_optim_step()):
                    self._exchange_rest(loop)
                if self._lost:
                    self._drop(loop)
                    return None
                if loop is not None and not loop.is_optim_step():
                    return None
                return call(*args, **kwargs)

            return wrapped

        for name in ("step", "unscale_", "update"):
            setattr(self._scaler, name, at_updates_only(getattr(self._scaler, name)))
        step = self._scaler.step

        def step_and_forget(optimizer, *args, **kwargs):
            result = step(optimizer, *args, **kwargs)
            loop = current_dataloader()
            if optimizer is not self.optimizer:  # of another model, with the same scaler
                return result
            if loop is not None:
                loop.updated.add(id(self))
            if loop is not None and loop.is_optim_step() and loop.accumulation_steps > 0:
                zero_grad()  # also after an overflow: the optimizer was not called, and would be given these again
            return result

        self._scaler.step = step_and_forget

    def _drop(self, loop):
        """The step under way counts nowhere."""
        if loop is not None:
            loop.dropped = True
        self.forget_gradients()

    def forget_gradients(self):
        """Between two steps: with accumulation the script's zero_grad() does nothing, and old ones would be added to."""
        self._put_away = []
        for parameter in self.module.parameters():
            parameter.grad = None

    def put_away_gradients(self):
        """After a micro-step that only accumulates: the script must not clip, or look at, half a gradient."""
        self._put_away = [(one, one.grad) for one in self.module.parameters() if one.grad is not None]
        for parameter, _ in self._put_away:
            parameter.grad = None

    def bring_back_gradients(self):
        for parameter, gradient in self._put_away:
            parameter.grad = gradient
        self._put_away = []

    def before_backward(self, loop):
        """A loop that may accumulate: gradients of earlier micro-steps are there again, to be added to."""
        self._exchanging = False
        if self._comes_late(loop):
            return
        self.bring_back_gradients()
        if loop.micro_count > 1 and id(self) in loop.exchanged:
            # A second backward of this micro-step: the step's weight is applied to the sum of both, and was to the first.
            gradients = [one.grad for one in self.module.parameters() if one.grad is not None]
            self._enlarged = [(gradient, gradient.clone()) for gradient in gradients]
            for gradient in gradients:
                gradient.mul_(loop.micro_count)

    def after_backward(self, loop):
        if self._enlarged and not self._exchanging:  # it was another model's
            for gradient, before in self._enlarged:
                gradient.copy_(before)
        self._enlarged = []
        if self._comes_late(loop):
            for parameter in self.module.parameters():
                parameter.grad = None
        elif loop.is_accum_step():
            self.put_away_gradients()

    def _comes_late(self, loop):
        """After its optimizer was called: the script's zero_grad() would clear it, which does nothing in between."""
        return loop.accumulation_steps > 0 and id(self) in loop.updated

    def _warn_of_second(self, loop):
        if self._comes_late(loop) and not self._warned:
            self._warned = True
            warnings.warn("optimizer.step() was called more than once for the same batch while gradients are accumulated: "
                          "only the first call counts, and later gradients of that batch are dropped. Give "
                          "autoscale_batch_size no gradient_accumulation for such a loop")

    def _update(self, loop, step, zero_grad):
        scale = 1.0
        if loop is not None:
            loop.train()
            self._measure_times(loop)
            scale = loop.current_batch_size / loop.batch_size
            self._exchange_statistics(scale)
        groups = self.optimizer.param_groups
        averages = self.statistics.averages
        self.gain = averages.gain(scale) if averages.known() else 1.0
        factors = [1.0] * len(groups) if loop is None else self.scaling_rule.factors(scale, len(groups))
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
            self._exchange_statistics(scale)  # of a closure's backward, which is in the step
            self._count_step(loop, scale, zero_grad)
        return result

    def _exchange_statistics(self, scale):
        sample, self._sample = self._sample, 0
        if not sample:
            return
        try:
            self.statistics.step_ended(dist.get_world_size(), scale, self._loss_scale(), sample)
        except RuntimeError as error:  # the gradients themselves are complete: the step counts
            if not groups.failed(error):
                raise

    def _count_step(self, loop, scale, zero_grad):
        if loop.accumulation_steps > 0:
            zero_grad()
        job = profile.current()
        job.updates += 1
        if loop.counted:  # by another model of the same loop
            return
        loop.counted = True
        models = list(Loop.models)
        if len(models) > 1:
            models.sort(key=lambda model: model._state.name)  # alike on all workers
        known = [model.statistics.averages.noise() for model in models if model.statistics.averages.known()]
        if known:
            job.grad_params = goodput.GradParams(sum(one[0] for one in known), sum(one[1] for one in known))
        job.step_done(goodput.gain(job.grad_params, scale) if known else 1.0)
        loop.count_samples()
        if groups.current() is not None:
            groups.current().count_step()
        job.report()

    def _loss_scale(self):
        return float(self._scaler.get_scale()) if self._scaler is not None else 1.0

    def _measure_times(self, loop):
        """Of a micro-step that ends now. Never waits for a GPU: what it has not done yet is read at a later step."""
        if self._began is not None:
            alone, updates = dist.get_world_size() == 1, loop.is_optim_step()
            exchanged = self._gradients_ready if updates and not alone else None
            is_step = updates and (exchanged is not None or alone or loop.accumulation_steps == 0)
            self._timed.append((is_step, loop.current_local_bsz, self._began, exchanged, _Moment(self._on_gpu)))
        self._began = self._gradients_ready = None
        while self._timed and self._timed[0][-1].passed():
            is_step, atomic, began, exchanged, ended = self._timed.popleft()
            whole = ended.since(began)
            own = exchanged.since(began) if exchanged else whole
            profile.current().add_times(atomic, own, whole if is_step else None)

    def metrics(self):
        loop, averages = current_dataloader(), self.statistics.averages
        known = {"workers": env.world_size(), "gain": self.gain, "lr_factor": self.lr_factor, "progress": self.progress,
                 "gradient_sqr": sum(averages.sqr()), "gradient_var": sum(averages.var())}
        return known if loop is None else {**known, "batch_size": loop.current_batch_size,
                                           "local_batch_size": loop.current_local_bsz,
                                           "accumulation_steps": loop.accumulation_steps}

    def to_tensorboard(self, writer, global_step, tag_prefix=""):
        if env.rank() != 0:
            return
        prefix = tag_prefix + "/" if tag_prefix and not tag_prefix.endswith("/") else tag_prefix
        averages = self.statistics.averages
        writer.add_scalar(prefix + "Gradient_Norm_Sqr", sum(averages.sqr()), global_step)
        writer.add_scalar(prefix + "Gradient_Variance", sum(averages.var()), global_step)
        writer.add_scalar(prefix + "Gain", self.gain, global_step)
        writer.add_scalar(prefix + "Learning_Rate_Factor", self.lr_factor, global_step)


class _Copy(torch.nn.Module):
    """What a copy of the wrapper is, in memory (an average of its weights) or in a file: the model under the same names,
    which no optimizer and no group belong to."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


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

    @property
    def model(self):
        """By AdaptDL's name: its example of a recommender saves `network._state.model`."""
        return self._parallel[0].module

    def _parts(self):
        parallel = self._parallel[0]
        parts = {"model": parallel.module, "optimizer": parallel.optimizer, "mp_scaler": parallel._scaler,
                 "statistics": parallel.statistics.averages}
        return {key: part for key, part in parts.items() if part is not None}

    def snapshot(self):
        saved = {key: part.state_dict() for key, part in self._parts().items()}
        if self._lr_scheduler is not None:
            saved["lr_scheduler"] = schedules.state_of(self._lr_scheduler)
        saved["seed"] = torch.initial_seed() % _SEED_RANGE
        saved["steps"] = profile.current().steps
        return saved

    def freeze(self, buffers):
        return checkpoint.frozen(self.snapshot(), buffers)

    def save(self, fileobj):
        plain.dump(self.snapshot(), fileobj)

    def load(self, fileobj):
        self._take(plain.load(fileobj, of_old_version=True))

    def restore(self, value):
        self._take(value)
        self._parallel[0]._shared = True

    def _take(self, saved):
        for key, part in self._parts().items():
            if key in saved:
                part.load_state_dict(saved[key])
        if self._lr_scheduler is not None and "lr_scheduler" in saved:
            schedules.load(self._lr_scheduler, saved["lr_scheduler"])
        # The same sequence of lives gives the same numbers; two workers never the same ones.
        torch.manual_seed((saved["seed"] + saved["steps"] * 1_000_003 + env.rank() * 7_919) % _SEED_RANGE)
