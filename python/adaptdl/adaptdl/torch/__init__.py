"""AdaptDL's PyTorch interface."""
import rubato.torch.data
from rubato.torch import (Accumulator, AdaptiveDataLoader, AdaptiveDataParallel, ElasticSampler, current_dataloader,
                          current_epoch, finished_epochs, init_process_group, remaining_epochs_until)

rubato.torch.data.epochs_end_by_progress = True  # as AdaptDL ends an autoscaled epoch

__all__ = ["Accumulator", "AdaptiveDataLoader", "AdaptiveDataParallel", "ElasticSampler", "current_dataloader",
           "current_epoch", "finished_epochs", "init_process_group", "remaining_epochs_until"]
