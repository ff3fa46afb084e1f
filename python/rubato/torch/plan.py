"""Which samples each worker takes at each step: pure functions, the same on all workers.

A pass over the data is a permutation of its samples and a cursor that counts what the whole group has taken. It does not
know how many workers there were: any number of them can go on from it, with any batch size.

An optimizer step is a list of micro-steps (all but the last only accumulate). A micro-step takes `total` samples from
the cursor on and shares them out as evenly as possible; a worker's gradient counts by its share, so that the average is
the one over the samples, whatever the number of workers.
"""
import collections

import torch

Micro = collections.namedtuple("Micro", "start total")


def permutation(length, shuffle, seed, epoch, number):
    """The order of pass `number` of `epoch`."""
    if not shuffle:
        return range(length)
    generator = torch.Generator()
    generator.manual_seed((seed * 1_000_003 + epoch * 10_007 + number) % (1 << 63))
    return torch.randperm(length, generator=generator).tolist()


def steps(length, cursor, micro_total, micro_count, drop_last=False):
    """The optimizer steps from `cursor` to the end of the pass, each a list of Micro.

    What does not fill a step any more makes one with fewer micro-steps, and what does not fill a micro-step one of its
    own; with `drop_last`, the latter is left out.
    """
    while cursor < length:
        full = min((length - cursor) // micro_total, micro_count)
        if full == 0:
            if not drop_last:
                yield [Micro(cursor, length - cursor)]
            return
        yield [Micro(cursor + i * micro_total, micro_total) for i in range(full)]
        cursor += full * micro_total


def share(micro, rank, replicas):
    """(first, count): this worker's part of a micro-step, as positions in the pass."""
    each, more = divmod(micro.total, replicas)
    first = micro.start + rank * each + min(rank, more)
    return first, each + (1 if rank < more else 0)


def weight(step, own, replicas):
    """What a worker's accumulated gradient is multiplied by, before the average over workers, at the end of a step.

    Micro-steps of one step have the same total; so has a worker the same share `own` in each.
    """
    return replicas * own / (step[0].total * len(step))
