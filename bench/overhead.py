#!/usr/bin/python3
"""What AdaptiveDataParallel's statistics cost a step, beside plain DistributedDataParallel, as a ratio.

    bench/overhead.py [--steps 400] [--warm-up 100] [--workers 2] [--device cpu|cuda] [--python PYTHON]

Both train the same small ResNet and the same small transformer in the same processes, in steps that take turns, so
that a busy machine is busy for both. A ratio is that of the means of the middle nine tenths of the steps: of the time
that passes, and of the CPU time of rank 0's process, which others' work disturbs less. The first steps, which are all
measured, are left out. Prints a Markdown table.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 1.03
LIBRARY = os.path.join(os.path.dirname(HERE), "python")


def middle(values):
    """The mean without the twentieth at either end: one of ten steps is measured, and must not be left out."""
    values = sorted(values)
    cut = len(values) // 20
    return statistics.fmean(values[cut : len(values) - cut])


def small_resnet(torch):
    class Block(torch.nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.one = torch.nn.Conv2d(channels, channels, 3, padding=1)
            self.two = torch.nn.Conv2d(channels, channels, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(channels)

        def forward(self, x):
            return torch.relu(x + self.norm(self.two(torch.relu(self.one(x)))))

    return torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), *[Block(32) for _ in range(4)],
                               torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))


def small_transformer(torch):
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    return torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 3), torch.nn.Flatten(), torch.nn.Linear(32 * 128, 10))


MODELS = {
    "resnet": (small_resnet, lambda torch: torch.randn(2048, 3, 16, 16), 32, "SGD"),
    "transformer": (small_transformer, lambda torch: torch.randn(2048, 32, 128), 32, "Adam"),
}


def worker(options):
    sys.path.insert(0, LIBRARY)
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import rubato.torch as adaptive

    device = options.device
    adaptive.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.set_num_threads(1)
    results = {}
    for name, (make, make_inputs, batch_size, kind) in MODELS.items():
        torch.manual_seed(1)
        inputs, targets = make_inputs(torch), torch.randint(0, 10, (2048,))
        data = torch.utils.data.TensorDataset(inputs, targets)
        total = batch_size * dist.get_world_size()

        def step(net, optimizer, backward, batches):
            """Seconds that pass, and of this process' CPUs."""
            if device == "cuda":
                torch.cuda.synchronize()
            started, cpu = time.perf_counter(), time.process_time()
            x, y = next(batches)
            optimizer.zero_grad()
            backward(torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device)))
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()
            return time.perf_counter() - started, time.process_time() - cpu

        plain_model, adaptive_model = make(torch).to(device), make(torch).to(device)
        plain_optimizer = getattr(torch.optim, kind)(plain_model.parameters(), lr=0.01)
        adaptive_optimizer = getattr(torch.optim, kind)(adaptive_model.parameters(), lr=0.01)
        plain = DistributedDataParallel(plain_model)
        net = adaptive.AdaptiveDataParallel(adaptive_model, adaptive_optimizer, name=name)
        sampler = torch.utils.data.DistributedSampler(data)
        plain_loader = torch.utils.data.DataLoader(data, batch_size=batch_size, sampler=sampler)
        loader = adaptive.AdaptiveDataLoader(data, batch_size=total, shuffle=True)
        loader.autoscale_batch_size(total)
        plain_backward = getattr(torch.Tensor.backward, "__wrapped__", torch.Tensor.backward)
        times = {"plain": [], "adaptive": []}
        # Steps take turns: whatever else the machine does, it does to both.
        while len(times["plain"]) < options.steps:
            pairs = iter(plain_loader), iter(loader)
            for _ in range(len(data) // total):
                times["plain"].append(step(plain, plain_optimizer, plain_backward, pairs[0]))
                times["adaptive"].append(step(net, adaptive_optimizer, torch.Tensor.backward, pairs[1]))
            next(pairs[1], None)  # the loop ends
        times = {key: values[options.warm_up:] for key, values in times.items()}
        results[name] = {key: [middle(one) for one in zip(*values)] for key, values in times.items()}
    if dist.get_rank() == 0:
        print(json.dumps(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    if "RANK" in os.environ:
        return worker(options)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(options.workers):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(options.workers), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen([options.python, __file__, *sys.argv[1:]], env=env, stdout=subprocess.PIPE))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        return 1
    print(f"A step of {options.workers} workers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| model | DistributedDataParallel | with statistics | ratio | CPU time, ratio | limit |\n"
          + "|---" * 6 + "|")
    for name, times in json.loads(outputs[0]).items():
        (plain, plain_cpu), (adaptive, adaptive_cpu) = times["plain"], times["adaptive"]
        print(f"| {name} | {1e3 * plain:.2f} ms | {1e3 * adaptive:.2f} ms | {adaptive / plain:.3f}x | "
              f"{adaptive_cpu / plain_cpu:.3f}x | {LIMIT}x |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
