"""The order of the samples in a pass, which nobody has to write down: any part of it is worked out when it is needed.

A shuffled order is a keyed permutation of 0 … length−1. Short ones are drawn whole. Longer ones are a Feistel network
over the smallest 2^bits that holds them all; what falls outside is sent through it again until it falls inside, so that
it stays a permutation. A worker that joins in the middle of a pass over a thousand million samples works out its next
batches and no more; the order is the same on all workers, whatever their PyTorch.
"""
import contextlib
import hashlib
import itertools
import random
import struct
import sys

import torch

_DRAWN_WHOLE = 1 << 12  # up to it every permutation is possible, and drawing one takes two milliseconds
_ROUNDS = 6  # four make a network of good functions look random to whoever asks for its values only
_FIRST_BLOCK, _BLOCK = 1024, 32768  # samples that are worked out together: few at first, for whoever waits for a batch
_MASK = 0xFFFFFFFF


class Order:
    """Of pass `number` of `epoch`. A pure function of its arguments."""

    def __init__(self, length, shuffle, seed=0, epoch=0, number=0):
        self.length = length
        self._whole = self._keys = None
        if not shuffle or length < 2:
            return
        digest = _digest(seed, epoch, number)
        if length <= _DRAWN_WHOLE:
            samples = list(range(length))
            random.Random(digest).shuffle(samples)
            self._whole = torch.tensor(samples)
            return
        bits = (length - 1).bit_length()
        self._low, self._high = bits // 2, bits - bits // 2
        self._keys = struct.unpack(f"<{_ROUNDS}I", digest)

    def __len__(self):
        return self.length

    def __getitem__(self, position):
        return int(self.at(torch.tensor([position]))[0])

    def at(self, positions):
        """The samples at these positions of the pass; both are tensors of whole numbers."""
        if self._whole is not None:
            return self._whole[positions]
        if self._keys is None:
            return positions
        samples = self._encrypt(positions)
        outside = (samples >= self.length).nonzero().flatten()
        while len(outside):
            again = self._encrypt(samples[outside])
            samples[outside] = again
            outside = outside[again >= self.length]
        return samples

    def _encrypt(self, values):
        """A permutation of 0 … 2^bits−1. The two halves change places, and with them their sizes, in each round."""
        small, large = self._low, self._high
        left, right = values >> large, values & ((1 << large) - 1)
        for key in self._keys:
            left, right = right, _mix(right ^ key).bitwise_and_((1 << small) - 1).bitwise_xor_(left)
            small, large = large, small
        return (left << large) | right

    def lists(self, ranges):
        """The samples of each (first, count), as lists. Worked out in blocks, none before it is asked for."""
        ranges, size = iter(ranges), _FIRST_BLOCK
        while block := _block(ranges, size):
            size = min(2 * size, _BLOCK)
            positions = torch.cat([torch.arange(first, first + count) for first, count in block])
            for samples in self.at(positions).split([count for _, count in block]):
                yield samples.tolist()

    def strided(self, first, stride):
        """Every `stride`-th sample from position `first` on, one by one."""
        for start in range(first, self.length, stride * _BLOCK):
            yield from self.at(torch.arange(start, min(start + stride * _BLOCK, self.length), stride)).tolist()


class DrawnOrder(Order):
    """What a sampler of the script's gives, drawn whole, with the same random numbers on all workers."""

    def __init__(self, sampler, seed=0, epoch=0, number=0):
        super().__init__(len(sampler), shuffle=False)
        with _random_numbers_of(_digest(seed, epoch, number), getattr(sampler, "generator", None)):
            samples = list(sampler)
        if len(samples) != self.length:
            raise ValueError(f"the sampler {type(sampler).__name__} has a length of {self.length}, but gave "
                             f"{len(samples)} samples")
        self._whole = torch.tensor(samples, dtype=torch.int64)


@contextlib.contextmanager
def _random_numbers_of(digest, generator):
    """Whatever a sampler draws from; what the training draws goes on as if nothing had been drawn."""
    seed = int.from_bytes(digest[:4], "little")
    numpy = sys.modules.get("numpy")
    kept = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)
        if generator is not None:
            generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(kept[0])
            if numpy:
                numpy.random.set_state(kept[1])


def _digest(seed, epoch, number):
    return hashlib.blake2b(repr((seed, epoch, number)).encode(), digest_size=4 * _ROUNDS).digest()


def _block(ranges, size):
    """The next ranges that have `size` samples together; not too many, where each has few."""
    block = []
    for one in itertools.islice(ranges, size // 8):
        block.append(one)
        size -= one[1]
        if size <= 0:
            break
    return block


def _mix(values):
    """32 bits, each of which depends on all that went in. The factor is below 2^27: no product leaves 64 bits."""
    values = (values >> 16).bitwise_xor_(values).mul_(0x45D9F3B).bitwise_and_(_MASK)
    values = (values >> 16).bitwise_xor_(values).mul_(0x45D9F3B).bitwise_and_(_MASK)
    return (values >> 16).bitwise_xor_(values)
