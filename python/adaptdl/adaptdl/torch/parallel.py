from rubato.torch.parallel import AdaptiveDataParallel

__all__ = ["AdaptiveDataParallel"]
