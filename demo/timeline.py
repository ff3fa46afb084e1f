"""From what the training of train.py wrote down: the proof that each sample counted once, and the timeline."""
import collections
import statistics

from telling import Broken


def prove_samples(lines, samples):
    """Each step once, each sample once a pass, in what led to the final state; (steps, passes, steps taken again,
    processes, accuracy).

    `lines`: what each worker noted before and after each step. A step that a loss broke is taken again in a later
    generation; so are steps after a checkpoint, where everybody was lost. What the last generation did counts.
    """
    end = next((line for line in lines if "finished" in line), None)
    if end is None:
        raise Broken("the training left no record of its end")
    shares = collections.defaultdict(dict)  # (step, generation) -> rank -> line
    generations = collections.defaultdict(set)  # step -> in which it was completed
    for line in lines:
        if "samples" in line:
            shares[line["step"], line["generation"]][line["rank"]] = line
        elif "done" in line:
            generations[line["done"]].add(line["generation"])
    seen, last = collections.defaultdict(collections.Counter), 0
    for step in range(1, end["finished"] + 1):
        if not generations[step]:
            raise Broken(f"step {step} was never completed")
        generation = max(generations[step])
        if generation < last:
            raise Broken(f"step {step} was completed in generation {generation}, the one before it in {last}")
        last = generation
        of_step = shares[step, generation]
        worlds = {one["world"] for one in of_step.values()}
        if sorted(of_step) != list(range(len(of_step))) or worlds != {len(of_step)}:
            raise Broken(f"step {step}: not all workers have noted what they took")
        for line in of_step.values():
            seen[line["epoch"]].update(line["samples"])
    for epoch in range(end["epochs"]):
        if seen[epoch] != collections.Counter(range(samples)):
            raise Broken(f"pass {epoch + 1} did not count each of the {samples} samples exactly once")
    again = sum(1 for key in shares if key[0] <= end["finished"]) - end["finished"]
    processes = len({line["pid"] for line in lines if "pid" in line})
    return end["finished"], end["epochs"], again, processes, end["accuracy"]


Row = collections.namedtuple("Row", "at generation workers batches steps loss pause change")


def timeline(metrics, changes):
    """A Row for each generation. `metrics`: what rank 0 logged; `changes`: {generation: how it came to be}.

    The pause is the time from the last step of the generation before to its own first, less that of a step.
    """
    of_generation = collections.defaultdict(list)
    for line in metrics:
        if "generation" in line:
            of_generation[line["generation"]].append(line)
    rows, before = [], None
    for generation in sorted(of_generation):
        lines = sorted(of_generation[generation], key=lambda line: line["time"])
        times = [line["time"] for line in lines]
        usual = statistics.median(b - a for a, b in zip(times, times[1:])) if len(times) > 1 else 0.0
        pause = max(times[0] - before - usual, 0.0) if before is not None else None
        batches = [size for size, last in zip((line["batch_size"] for line in lines),
                                              [None] + [line["batch_size"] for line in lines]) if size != last]
        rows.append(Row(times[0], generation, lines[-1]["workers"], batches, lines[-1]["step"] - lines[0]["step"] + 1,
                        statistics.median(line["loss"] for line in lines[-10:]), pause, changes.get(generation, "")))
        before = times[-1]
    return rows


def render(rows):
    """Lines of text, with a bar for the workers."""
    yield "   at  generation  workers  batch size              steps   loss   pause   how it came to be"
    for row in rows:
        sizes = row.batches if len(row.batches) <= 4 else [*row.batches[:2], "…", row.batches[-1]]
        pause = f"{row.pause:5.2f} s" if row.pause is not None else "       "
        yield (f"{row.at - rows[0].at:5.1f}  {row.generation:10d}  {'■' * row.workers:7s}  "
               f"{'→'.join(map(str, sizes)):22s} {row.steps:6d}  {row.loss:5.2f} {pause}   {row.change}")
