"""How the learning rate follows the batch size. A rule gives a factor for each parameter group at `scale` = M/M0."""
import math


class ScalingRuleBase:
    """Subclasses say `scale_lr(scale)`: one number, or one for each parameter group of the optimizer."""

    def __init__(self):
        self.adp = None
        self._optimizer = None

    def initialize(self, adp, optimizer, patch_optimizer=False):
        self.adp, self._optimizer = adp, optimizer

    def step(self, *args, **kwargs):
        """The optimizer's, which AdaptiveDataParallel has made to follow this rule."""
        return self._elastic_optimizer().step(*args, **kwargs)

    def zero_grad(self, *args, **kwargs):
        return self._elastic_optimizer().zero_grad(*args, **kwargs)

    def _elastic_optimizer(self):
        if self.adp is None:
            raise ValueError("this scaling rule belongs to no AdaptiveDataParallel yet: give it as scaling_rule=")
        return self._optimizer

    def scale_lr(self, scale):
        raise NotImplementedError

    def factors(self, scale, groups):
        value = self.scale_lr(scale)
        return list(value) if hasattr(value, "__len__") else [float(value)] * groups


class AdaScale(ScalingRuleBase):
    """The gain itself: for SGD. As much progress a step as the noise of the gradients lets a larger batch make."""

    def scale_lr(self, scale):
        averages = self.adp.statistics.averages
        return averages.gains(scale) if averages.known() else [1.0] * averages.groups


class AdamScale(AdaScale):
    """The root of the gain of preconditioned gradients: for Adam, AdamW, RMSprop."""

    def __init__(self, power=0.5):
        super().__init__()
        self._power = power

    def scale_lr(self, scale, power=None):
        return [gain ** (self._power if power is None else power) for gain in super().scale_lr(scale)]


class LinearScale(ScalingRuleBase):
    def scale_lr(self, scale):
        return scale


class SqrtScale(ScalingRuleBase):
    def scale_lr(self, scale):
        return math.sqrt(scale)


class LEGWScale(ScalingRuleBase):
    """√scale, with a linear warm-up over `base_warmup_epochs`·scale epochs of `data_size` samples."""

    def __init__(self, base_warmup_epochs, data_size):
        super().__init__()
        self._base_warmup_epochs = base_warmup_epochs
        self._data_size = data_size

    def scale_lr(self, scale):
        total = self._base_warmup_epochs * scale * self._data_size / self.adp.init_batch_size()
        done = self.adp.progress
        return math.sqrt(scale) * (min(1.0, done / total) if total > 0 else 1.0)
