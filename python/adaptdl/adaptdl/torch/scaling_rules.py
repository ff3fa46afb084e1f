"""AdaptDL's scaling rules. Those that ask the model's `gns` do so by AdaptDL's names, as rules of one's own do."""
import math

import numpy as np
from rubato.torch import scaling_rules as _rules
from rubato.torch.data import current_dataloader
from rubato.torch.scaling_rules import LinearScale, ScalingRuleBase, SqrtScale

__all__ = ["AdaScale", "AdamScale", "LEGWScale", "LinearScale", "ScalingRuleBase", "SqrtScale"]

_VAR_MIN = 1e-6


class AdaScale(_rules.AdaScale):
    def scale_lr(self, scale):
        """A factor for each parameter group: an array of numpy."""
        var, sqr = np.maximum(self.adp.gns.raw_var_avg, _VAR_MIN), np.maximum(self.adp.gns.raw_sqr_avg, 0.0)
        return (var + sqr) / (var / scale + sqr)


class AdamScale(_rules.AdamScale, AdaScale):
    def scale_lr(self, scale, power=None):
        return np.power(AdaScale.scale_lr(self, scale), self._power if power is None else power)


class LEGWScale(_rules.LEGWScale):
    def scale_lr(self, scale):
        warm_up = self._base_warmup_epochs * scale * self._data_size / current_dataloader().batch_size
        done = self.adp.gns.get_progress()
        return math.sqrt(scale) * (done / warm_up if done < warm_up else 1.0)
