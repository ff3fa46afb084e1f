"""A small training whose result does not depend on how many workers did it. Prints a line a step; ends with weights.

    train.py EPOCHS [--adam] [--sparse] [--accumulate] [--clip] [--scaler [--overflow]] [--compile] [--log]
             [--cuda [--gloo]] [--slow SECONDS]

--overflow gives one step a loss that mixed precision must skip.
"""
import sys

import torch

import rubato
import rubato.torch as adaptive
from rubato import env
from testing import pause


class Scaler:
    """As PyTorch's GradScaler, for a CPU; PyTorch has one since 2.3."""

    def __init__(self, init_scale, growth_interval):
        self._scale, self._interval, self._good, self._overflow = init_scale, growth_interval, 0, None

    def scale(self, loss):
        return loss * self._scale

    def unscale_(self, optimizer):
        if self._overflow is not None:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._overflow = not all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        for gradient in gradients:
            gradient.div_(self._scale)

    def step(self, optimizer):
        if self._overflow is None:
            self.unscale_(optimizer)
        return None if self._overflow else optimizer.step()

    def update(self):
        assert self._overflow is not None, "No inf checks were recorded prior to update."
        self._good = 0 if self._overflow else self._good + 1
        if self._overflow or self._good % self._interval == 0:
            self._scale *= 0.5 if self._overflow else 2.0
        self._overflow = None

    def get_scale(self):
        return self._scale

    def state_dict(self):
        return {"scale": self._scale, "good": self._good}

    def load_state_dict(self, state):
        self._scale, self._good = state["scale"], state["good"]


class Bags(torch.nn.Module):
    """Of a table whose gradients are sparse: of the rows that were looked up."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.EmbeddingBag(40, 2, sparse=True)

    def forward(self, x):
        return self.table((x.abs() * 20).long().clamp(max=39))


def make_scaler(device):
    options = {"init_scale": 1024.0, "growth_interval": 7}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device, **options)
    return torch.cuda.amp.GradScaler(**options) if device == "cuda" else Scaler(**options)


epochs = int(sys.argv[1])
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
device = "cuda" if "--cuda" in sys.argv else "cpu"
adaptive.init_process_group("nccl" if device == "cuda" and "--gloo" not in sys.argv else "gloo")
torch.manual_seed(7)
inputs = torch.randn(100, 6, dtype=torch.float64)
targets = inputs @ torch.randn(6, 2, dtype=torch.float64)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double().to(device)
kind = torch.optim.Adam if "--adam" in sys.argv else torch.optim.SGD
if "--sparse" in sys.argv:
    model = Bags().double().to(device)
    kind = torch.optim.SparseAdam if "--adam" in sys.argv else torch.optim.SGD
optimizer = kind(list(model.parameters()), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
scaler = make_scaler(device) if "--scaler" in sys.argv else None
compiled = torch.compile(model, backend="aot_eager") if "--compile" in sys.argv else model
net = adaptive.AdaptiveDataParallel(compiled, optimizer, scheduler, scaler)
loader = adaptive.AdaptiveDataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=12, shuffle=True)
if "--accumulate" in sys.argv:  # a worker takes four samples at a time; the whole batch stays
    loader.autoscale_batch_size(12, local_bsz_bounds=(1, 4), gradient_accumulation=True)
stats = adaptive.Accumulator()
for epoch in adaptive.remaining_epochs_until(epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))
        if "--overflow" in sys.argv and (epoch, adaptive.current_dataloader().current_index) == (1, 24):
            loss = loss * float("inf")
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler and "--clip" in sys.argv:
            scaler.unscale_(optimizer)
        if "--clip" in sys.argv:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if "--log" in sys.argv:
            rubato.log(loss=loss, **net.metrics())
        stats["steps"] += 1
        print(f"step {epoch} {adaptive.current_dataloader().current_index}", flush=True)
        pause(slow)
    scheduler.step()
    with stats.synchronized():
        pass
if env.rank() == 0:
    assert ("--accumulate" in sys.argv and env.world_size() < 3) == (loader.accumulation_steps > 0)
    print("weights", [round(value, 9) for p in model.parameters() for value in p.flatten().tolist()][:20])
