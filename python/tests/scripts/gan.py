"""Two models in one loop, as a GAN trains them: two backwards of one, then one through both.

    gan.py EPOCHS [--accumulate | --plain SAMPLES]

--plain does the same without the library, so many samples at a time: what comes before a batch's last ones meets a judge
that has not been updated yet, as with --accumulate. Ends with a line of JSON: steps, progress, what was measured, weights.
"""
import json
import sys

import torch

import rubato.torch as adaptive
from rubato import env
from rubato.torch import profile

torch.manual_seed(3)
samples = torch.randn(40, 4, dtype=torch.float64)
judge = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()
maker = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4)).double()
judges, makers = (torch.optim.SGD(model.parameters(), lr=0.05) for model in (judge, maker))
loss_of = torch.nn.functional.binary_cross_entropy_with_logits
net_judge, net_maker, loader = judge, maker, torch.utils.data.DataLoader(samples, batch_size=8)
epochs = range(int(sys.argv[1]))
if "--plain" not in sys.argv:
    adaptive.init_process_group("gloo")
    net_judge = adaptive.AdaptiveDataParallel(judge, judges, name="judge")
    net_maker = adaptive.AdaptiveDataParallel(maker, makers, name="maker")
    loader = adaptive.AdaptiveDataLoader(samples, batch_size=8)
    if "--accumulate" in sys.argv:
        loader.autoscale_batch_size(8, local_bsz_bounds=(1, 2), gradient_accumulation=True)
    epochs = adaptive.remaining_epochs_until(int(sys.argv[1]))


def judge_losses(real):
    ones, zeros = torch.ones(len(real), 1).double(), torch.zeros(len(real), 1).double()
    fake = net_maker(real.flip(1))
    yield loss_of(net_judge(real), ones)
    yield loss_of(net_judge(fake.detach()), zeros)
    yield fake


def maker_loss(fake):
    return loss_of(net_judge(fake), torch.ones(len(fake), 1).double())


def plain_step(real, samples_at_once):
    parts = real.split(samples_at_once)
    judges.zero_grad()
    makers.zero_grad()
    for part in parts:
        *losses, fake = judge_losses(part)
        (sum(losses) / len(parts)).backward()
        if part is parts[-1]:
            judges.step()
        kept = [parameter.grad.clone() for parameter in judge.parameters()]
        (maker_loss(fake) / len(parts)).backward()
        for parameter, gradient in zip(judge.parameters(), kept):
            parameter.grad = gradient
    makers.step()


def elastic_step(real):
    judges.zero_grad()
    losses = judge_losses(real)
    next(losses).backward()
    next(losses).backward()
    fake = next(losses)
    judges.step()
    makers.zero_grad()
    maker_loss(fake).backward()
    makers.step()


for _ in epochs:
    for real in loader:
        if "--plain" in sys.argv:
            plain_step(real, int(sys.argv[sys.argv.index("--plain") + 1]))
        else:
            elastic_step(real)
if env.rank() == 0:
    result = {"weights": [round(value, 9) for p in (*judge.parameters(), *maker.parameters()) for value in p.flatten().tolist()]}
    if "--plain" not in sys.argv:
        averages = [net.statistics.averages for net in (net_judge, net_maker)]
        result.update(steps=profile.current().steps, updates=profile.current().updates, progress=profile.current().progress,
                      known=[one.known() for one in averages], weight=[one.weight["sqr"] for one in averages],
                      sqr=[sum(one.sqr()) for one in averages], params=profile.current().grad_params)
    print("result", json.dumps(result))
