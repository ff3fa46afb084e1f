"""A small training whose result does not depend on how many workers did it. Prints a line a step; ends with weights.

    train.py EPOCHS [--adam] [--accumulate] [--cuda [--gloo]] [--slow SECONDS]
"""
import sys
import time

import torch

import rubato.torch as adaptive
from rubato import env

epochs = int(sys.argv[1])
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
device = "cuda" if "--cuda" in sys.argv else "cpu"
adaptive.init_process_group("nccl" if device == "cuda" and "--gloo" not in sys.argv else "gloo")
torch.manual_seed(7)
inputs = torch.randn(100, 6, dtype=torch.float64)
targets = inputs @ torch.randn(6, 2, dtype=torch.float64)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double().to(device)
kind = torch.optim.Adam if "--adam" in sys.argv else torch.optim.SGD
optimizer = kind(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
net = adaptive.AdaptiveDataParallel(model, optimizer, scheduler)
loader = adaptive.AdaptiveDataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=12, shuffle=True)
if "--accumulate" in sys.argv:  # a worker takes four samples at a time; the whole batch stays
    loader.autoscale_batch_size(12, local_bsz_bounds=(1, 4), gradient_accumulation=True)
stats = adaptive.Accumulator()
for epoch in adaptive.remaining_epochs_until(epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        stats["steps"] += 1
        print(f"step {epoch} {adaptive.current_dataloader().current_index}", flush=True)
        time.sleep(slow)
    scheduler.step()
    with stats.synchronized():
        pass
if env.rank() == 0:
    assert ("--accumulate" in sys.argv and env.world_size() < 3) == (loader.accumulation_steps > 0)
    print("weights", [round(value, 9) for p in model.parameters() for value in p.flatten().tolist()][:20])
