from rubato.torch.accumulator import Accumulator

__all__ = ["Accumulator"]
