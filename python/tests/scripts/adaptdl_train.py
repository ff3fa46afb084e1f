"""As AdaptDL's users write it: its names, an autoscaled batch size, a loop that trains and one that tests.

    adaptdl_train.py EPOCHS
"""
import sys

import torch
import torch.nn.functional as F

import adaptdl
import adaptdl.torch

try:
    from testing import pause  # of python/tests, where it is one of those
except ImportError:
    from time import sleep as pause

torch.set_num_threads(1)
torch.manual_seed(1)
inputs = torch.randn(240, 10)
targets = (inputs.sum(dim=1) > 0).long()
train_set = torch.utils.data.TensorDataset(inputs[:200], targets[:200])
test_set = torch.utils.data.TensorDataset(inputs[200:], targets[200:])
train_loader = adaptdl.torch.AdaptiveDataLoader(train_set, drop_last=True, batch_size=8, shuffle=True)
test_loader = adaptdl.torch.AdaptiveDataLoader(test_set, batch_size=8)
train_loader.autoscale_batch_size(64, local_bsz_bounds=(2, 32), gradient_accumulation=True)
model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                            torch.nn.Linear(16, 2))
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
adaptdl.torch.init_process_group("gloo")
model = adaptdl.torch.AdaptiveDataParallel(model, optimizer, scheduler)
stats = adaptdl.torch.Accumulator()
for epoch in adaptdl.torch.remaining_epochs_until(int(sys.argv[1])):
    model.train()
    for data, target in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(data), target).backward()
        optimizer.step()
        pause(0.005)
    model.eval()
    with torch.no_grad():
        for data, target in test_loader:
            stats["correct"] += int((model(data).argmax(dim=1) == target).sum())
            stats["tested"] += len(target)
    with stats.synchronized():
        print(f"epoch {epoch}: {stats['correct']} of {stats['tested']}")
    scheduler.step()
print("sum", [round(float(parameter.sum()), 4) for parameter in model.parameters()], scheduler.last_epoch)
