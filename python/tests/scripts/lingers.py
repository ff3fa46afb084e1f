"""Ends at once after its last step, while gloo's threads are still giving back what the library called on them."""
import gc
import time

import torch
from rubato.torch import AdaptiveDataLoader, AdaptiveDataParallel, init_process_group, remaining_epochs_until


class Lingering:
    def __init__(self):
        self._sleep = time.sleep

    def __del__(self):
        self._sleep(0.5)


class SlowEnd:
    """Part of a cycle, so that it goes when the interpreter looks for garbage for the last time, and then takes its time."""

    def __init__(self):
        self._itself, self._now = self, time.monotonic

    def __del__(self):
        end = self._now() + 2
        while self._now() < end:
            pass


def then(future, call, original=torch._C.Future.then):
    lingering = Lingering()
    return original(future, lambda done: (lingering, call(done))[1])


init_process_group("gloo")
torch._C.Future.then = then
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
net = AdaptiveDataParallel(model, optimizer)
loader = AdaptiveDataLoader(torch.ones(4, 1), batch_size=4)
for _epoch in remaining_epochs_until(1):
    for batch in loader:
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
gc.disable()
SlowEnd()
print("trained", flush=True)
