"""One worker on a GPU, and PyTorch's own parts there. Each check prints a line of its name and what it found.

    on_gpu.py precision|sharded|statistics... [--cpu]
"""
import json
import sys

import torch

import rubato.torch as adaptive
from rubato import checkpoint

device = "cpu" if "--cpu" in sys.argv else "cuda"


def batches(length, batch_size, most=None, **options):
    data = torch.arange(float(length)).reshape(-1, 1)
    loader = adaptive.AdaptiveDataLoader(data, batch_size=batch_size, **options)
    if most is not None:
        loader.autoscale_batch_size(most, local_bsz_bounds=(1, most))
    return loader


def check_precision():
    """Mixed precision with PyTorch's own scaler, and a model compiled by its own compiler."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**16)
    net = adaptive.AdaptiveDataParallel(torch.compile(model), optimizer, mp_scaler=scaler, name="precise")
    losses = []
    for epoch in range(8):
        for x in batches(256, 32, shuffle=True):
            x = x.to(device) / 256
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16 if epoch % 2 else torch.float16):
                loss = (net(x) - x.square()).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 4, losses[::8]
    return {"first": losses[0], "last": losses[-1], "scale": scaler.get_scale(), "gain": net.gain}


def check_sharded():
    """FSDP2 on the GPU, with NCCL; what is saved is there in another model."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from rubato.torch.sharded import ShardedState

    def make():
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(7, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3)).to(device)
        fully_shard(model, mesh=init_device_mesh(device, (1,)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, optimizer, ShardedState(model, optimizer)

    model, optimizer, state = make()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 7, device=device)).square().mean().backward()
        optimizer.step()
    checkpoint.save_all_states()
    kept = [one.full_tensor().clone() for one in model.parameters()]
    checkpoint.unregister(state.name)
    checkpoint._loading_from = (None, None)  # as another life
    other, _, _ = make()
    assert all(torch.equal(one, two.full_tensor()) for one, two in zip(kept, other.parameters())), "what was saved"
    return {"parameters": len(kept)}


def check_statistics():
    """The noise of the gradients; the same on a CPU, but for rounding."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    net = adaptive.AdaptiveDataParallel(model, optimizer, name="measured")
    for _ in range(4):
        for x in batches(320, 32, 32, shuffle=True):
            x = x.double().to(device) / 320
            optimizer.zero_grad()
            (net(x) - x.square()).square().mean().backward()
            optimizer.step()
    averages = net.statistics.averages
    assert averages.known()
    return {"sqr": averages.sqr(), "var": averages.var(), "weights": sum(one.sum().item() for one in model.parameters())}


adaptive.init_process_group("gloo" if device == "cpu" else "nccl", in_place=False)
for name in [one for one in sys.argv[1:] if not one.startswith("-")]:
    print(name, json.dumps(globals()["check_" + name]()), flush=True)
