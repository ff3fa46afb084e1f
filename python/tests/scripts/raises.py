"""A training of two workers in which one raises an error, with a collective under way that the other never joins."""
import torch

import rubato.torch as adaptive
from rubato import collective, env

adaptive.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
net = adaptive.AdaptiveDataParallel(model, optimizer)
for number, batch in enumerate(adaptive.AdaptiveDataLoader(torch.randn(40, 2), batch_size=4)):
    if number == 1:
        collective.allreduce_async(1).result()  # the first one, for which all of them make a group
    if number == 3 and env.rank() == 1:
        collective.allreduce_async(1)
        raise ValueError("the script's own")
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
