"""ElasticSampler, for loops over a plain DataLoader."""
import math

from torch.utils.data import Sampler

from rubato import env
from rubato.torch.order import Order


class ElasticSampler(Sampler):
    """Partitions a dataset among the replicas from a given position on; `set_epoch(epoch, index)` chooses both.

    For loops that use a plain DataLoader. Every replica gets as many samples as the others, the last ones repeated if
    need be; AdaptiveDataLoader repeats none.
    """

    def __init__(self, dataset, shuffle=True):
        self.dataset, self.shuffle = dataset, shuffle
        self._num_replicas = self._rank = None
        self.epoch = self.index = 0

    @property
    def num_replicas(self):
        """Those of this moment, unless somebody has set it."""
        return env.world_size() if self._num_replicas is None else self._num_replicas

    @num_replicas.setter
    def num_replicas(self, value):
        self._num_replicas = value

    @property
    def rank(self):
        return env.rank() if self._rank is None else self._rank

    @rank.setter
    def rank(self, value):
        self._rank = value

    def __iter__(self):
        length, rank, replicas = len(self.dataset), self.rank, self.num_replicas
        if length == 0:
            return
        number, base = divmod(self.index, length)
        order = Order(length, self.shuffle, 0, self.epoch, number)
        yield from order.strided(base + rank, replicas)
        if rank >= (length - base) % replicas > 0:  # or some replicas would have one more than others
            yield order[rank % length]

    def __len__(self):
        length = len(self.dataset)
        return math.ceil((length - self.index % length) / self.num_replicas) if length else 0

    def set_epoch(self, epoch, index=0):
        self.epoch, self.index = epoch, index
