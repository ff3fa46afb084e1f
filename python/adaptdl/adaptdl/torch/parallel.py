from rubato.torch import parallel as _parallel
from rubato.torch.scaling_rules import ScalingRuleBase

__all__ = ["AdaptiveDataParallel"]


class AdaptiveDataParallel(_parallel.AdaptiveDataParallel):
    """The library's. A scaling rule may also stand where the scaler does: older versions of AdaptDL had it there."""

    def __init__(self, model, optimizer, lr_scheduler=None, mp_scaler=None, scaling_rule=None,
                 name="adaptdl-dataparallel", **kwargs):
        if isinstance(mp_scaler, ScalingRuleBase):
            mp_scaler, scaling_rule = None, mp_scaler
        super().__init__(model, optimizer, lr_scheduler, mp_scaler, scaling_rule, name, **kwargs)
