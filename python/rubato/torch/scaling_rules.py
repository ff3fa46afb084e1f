"""How the learning rate follows the batch size. A rule gives a factor for each parameter group at `scale` = M/M0."""
import math


class ScalingRuleBase:
    """Subclasses say `scale_lr(scale)`: one number, or one for each parameter group of the optimizer."""

    def __init__(self):
        self.adp = None

    def initialize(self, adp, optimizer, patch_optimizer=False):
        self.adp = adp

    def scale_lr(self, scale):
        raise NotImplementedError

    def factors(self, scale, groups):
        value = self.scale_lr(scale)
        return list(value) if hasattr(value, "__len__") else [float(value)] * groups


class AdaScale(ScalingRuleBase):
    """The gain itself: for SGD. As much progress a step as the noise of the gradients lets a larger batch make."""

    def scale_lr(self, scale):
        return self.adp.statistics.averages.gains(scale)


class AdamScale(AdaScale):
    """The root of the gain of preconditioned gradients: for Adam, AdamW, RMSprop."""

    def __init__(self, power=0.5):
        super().__init__()
        self._power = power

    def scale_lr(self, scale):
        return [gain**self._power for gain in super(AdamScale, self).scale_lr(scale)]


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
