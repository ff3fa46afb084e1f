"""Trains while the model is in evaluation mode, or past the wrapper. Each worker prints its weights.

    eval_mode.py frozen|forgotten|second|inline|small|past|outside [--slow SECONDS]
"""
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import rubato.torch as adaptive
from rubato import _plain
from testing import pause

kind = sys.argv[1]
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
adaptive.init_process_group("gloo")
torch.manual_seed(7)
length = 2 if kind == "small" else 26
inputs = torch.randn(length, 6, dtype=torch.float64)
data = TensorDataset(inputs, inputs @ torch.randn(6, 2, dtype=torch.float64))
middle = [torch.nn.BatchNorm1d(8)] if kind in ("frozen", "inline", "small") else []  # always in evaluation mode
model = torch.nn.Sequential(torch.nn.Linear(6, 8), *middle, torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
net = adaptive.AdaptiveDataParallel(model, optimizer)
job = _plain.Job(net)


def train(batches, forward=net):
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(forward(x), y)
        torch.autograd.backward(loss)
        if forward is net:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()
        pause(slow)


def make_loader():
    return DataLoader(data, batch_size=8, shuffle=True)


first, second = make_loader(), make_loader()
sampler = adaptive.ElasticSampler(data)
net.train(kind in ("forgotten", "second", "past"))
for epoch in adaptive.remaining_epochs_until(4):
    if kind == "inline":
        with torch.no_grad():
            for x, _ in job.batches(DataLoader(data, batch_size=3)):
                net(x)
        train(job.batches(make_loader()))
    elif kind == "second" and epoch > 1:
        net.eval()
        train(job.batches(second))
    elif kind == "outside":
        sampler.set_epoch(epoch)
        train(DataLoader(data, batch_size=2, sampler=sampler))
    else:
        train(job.batches(first), model if kind == "past" else net)
        if kind == "forgotten":
            net.eval()
            for x, _ in job.batches(second):
                net(x)  # with gradients, as scripts do that forget no_grad()
print("weights", [round(value, 9) for p in model.parameters() for value in p.flatten().tolist()])
