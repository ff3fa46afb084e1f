from rubato.torch.data import AdaptiveDataLoader, current_dataloader
from rubato.torch.helper import AdaptiveDataLoaderHelper, AdaptiveDataLoaderMixin
from rubato.torch.sampler import ElasticSampler

__all__ = ["AdaptiveDataLoader", "AdaptiveDataLoaderHelper", "AdaptiveDataLoaderMixin", "ElasticSampler",
           "current_dataloader"]
