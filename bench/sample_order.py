#!/usr/bin/env python3
"""What the order of the samples costs a worker when its group changes: survivors and newcomers pay the same.

    bench/sample_order.py [--lengths 1000000,10000000,1000000000] [--times 5]

The time from a change to the first batch's indices, in the middle of a shuffled pass, and the memory that this takes;
then the time for each further sample.
"""
import argparse
import os
import resource
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python"))


class Numbers:
    """A dataset of any length that takes no room."""

    def __init__(self, length):
        self._length = length

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        return index


def measure(length, times):
    from rubato.torch import AdaptiveDataLoader
    from rubato.torch.steps import MapSteps

    loader = AdaptiveDataLoader(Numbers(length), batch_size=256, shuffle=True)
    first = []
    for i in range(times):
        loader._elastic.state.cursor = length // 2 + i
        began = time.perf_counter()
        steps = iter(MapSteps(loader))
        next(next(steps).micros)
        first.append(time.perf_counter() - began)
    began, batches = time.perf_counter(), 200
    for _, step in zip(range(batches), steps):
        next(step.micros)
    return statistics.median(first), (time.perf_counter() - began) / batches / 256


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="1000000,10000000,1000000000")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    import rubato.torch  # noqa: F401  its memory is not what is measured

    for length in map(int, options.lengths.split(",")):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first, each = measure(length, options.times)
        megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{length:,} samples: first batch after a change {1e3 * first:.1f} ms, {megabytes:.0f} MB; "
              f"each further sample {1e6 * each:.2f} µs", flush=True)


if __name__ == "__main__":
    sys.exit(main())
