"""A training whose optimizer calls a closure, some of them as often as the losses say. Ends with the weights.

    closures.py EPOCHS [--wolfe] [--sgd] [--slow SECONDS]
"""
import sys

import torch

import rubato.torch as adaptive
from rubato import env
from testing import pause

epochs = int(sys.argv[1])
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
torch.set_num_threads(1)
adaptive.init_process_group("gloo")
torch.manual_seed(5)
inputs = torch.randn(50, 3, dtype=torch.float64)
targets = (inputs @ torch.randn(3, 1, dtype=torch.float64)).tanh()
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
if "--sgd" in sys.argv:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
else:  # tolerances that each worker would reach after other losses of its own
    search = "strong_wolfe" if "--wolfe" in sys.argv else None
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, history_size=3, tolerance_change=1e-3,
                                  line_search_fn=search)
net = adaptive.AdaptiveDataParallel(model, optimizer)
loader = adaptive.AdaptiveDataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=10, shuffle=True)
for epoch in adaptive.remaining_epochs_until(epochs):
    for x, y in loader:
        calls = 0

        def closure(x=x, y=y):
            global calls
            calls += 1
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            pause(slow)
            return loss

        optimizer.step(closure)
        print(f"step {epoch} {adaptive.current_dataloader().current_index} after {calls} calls", flush=True)
if env.rank() == 0:
    print("weights", [round(value, 9) for p in model.parameters() for value in p.flatten().tolist()])
