from rubato.torch.iterator import AdaptiveBPTTIterator

__all__ = ["AdaptiveBPTTIterator"]
