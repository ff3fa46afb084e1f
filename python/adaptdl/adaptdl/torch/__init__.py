"""AdaptDL's PyTorch interface."""
import rubato.torch.data
from rubato.torch import init_process_group

import adaptdl._signal
import adaptdl.checkpoint
import adaptdl.collective
import adaptdl.env
from adaptdl.torch.accumulator import Accumulator
from adaptdl.torch.data import AdaptiveDataLoader, ElasticSampler, current_dataloader
from adaptdl.torch.epoch import current_epoch, finished_epochs, remaining_epochs_until
from adaptdl.torch.parallel import AdaptiveDataParallel
from adaptdl.torch.scaling_rules import ScalingRuleBase as _ScalingRuleBase  # adaptdl.torch.scaling_rules, too

rubato.torch.data.epochs_end_by_progress = True  # as AdaptDL ends an autoscaled epoch
rubato.torch.data.equal_shares = True  # and as it rounds batches up

__all__ = ["Accumulator", "AdaptiveDataLoader", "AdaptiveDataParallel", "ElasticSampler", "current_dataloader",
           "current_epoch", "finished_epochs", "init_process_group", "remaining_epochs_until"]
