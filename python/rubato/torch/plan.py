"""Which samples each worker takes at each step: pure functions, the same on all workers.

A pass over the data is an order of its samples (order.py) and a cursor that counts what the whole group has taken. It
does not know how many workers there were: any number of them can go on from it, with any batch size.

An optimizer step is a list of micro-steps (all but the last only accumulate). A micro-step takes `total` samples from
the cursor on and shares them out as evenly as possible; a worker's gradient counts by its share, so that the average is
the one over the samples, whatever the number of workers.
"""
import collections

Micro = collections.namedtuple("Micro", "start total")


def steps(sections, cursor, micro_total, micro_count, drop_last=False):
    """The optimizer steps from `cursor` to the end of the pass, each a list of Micro. None crosses a section's end.

    What does not fill a step any more makes one with fewer micro-steps, and what does not fill a micro-step one of its
    own; with `drop_last`, the latter is left out.
    """
    for end in sections:
        while cursor < end:
            full = min((end - cursor) // micro_total, micro_count)
            if full == 0:
                if not drop_last:
                    yield [Micro(cursor, end - cursor)]
                cursor = end
                break
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
