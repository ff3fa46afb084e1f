"""AdaptDL's estimates of the gradients' noise: what `model.gns` is. The library measures; these read."""
from rubato.torch.statistics import NoiseScale as GradientNoiseScale

__all__ = ["AdamGradientNoiseScale", "GradientNoiseScale"]

AdamGradientNoiseScale = GradientNoiseScale  # the model's scaling rule decides whether gradients are preconditioned
