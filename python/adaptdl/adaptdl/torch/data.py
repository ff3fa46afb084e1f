from rubato.torch.data import AdaptiveDataLoader, ElasticSampler, current_dataloader

__all__ = ["AdaptiveDataLoader", "ElasticSampler", "current_dataloader"]
