"""A training whose parameters count how often each sample has contributed to them.

    count.py EPOCHS LENGTH BATCH [--slow SECONDS] [--ballast MB] [--saves SECONDS] [--stream | --own-loader [--accumulate]] [--evaluate]
             [--inline [--own-epochs]]

--inline: data loaders are made for each loop; --own-epochs: the script counts its epochs itself.
Ends with a line of JSON: the count of each sample, what an Accumulator has counted, steps of the learning rate.
"""
import json
import sys

import torch

import rubato
from rubato import env
from rubato.torch import Accumulator, AdaptiveDataLoader, AdaptiveDataLoaderMixin, ElasticSampler, current_dataloader, \
    current_epoch
from rubato.torch import data
from testing import pause

epochs, length, batch = map(int, sys.argv[1:4])
slow = float(sys.argv[sys.argv.index("--slow") + 1]) if "--slow" in sys.argv else 0.0
if "--saves" in sys.argv:
    data.CHECKPOINT_EVERY_S = float(sys.argv[sys.argv.index("--saves") + 1])
torch.set_num_threads(1)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(length))


class OwnLoader(AdaptiveDataLoaderMixin):
    """As AdaptDL's users write one. Sizes divide each other here, so that each sample counts once."""

    def __init__(self):
        super().__init__(batch)
        self.sampler = ElasticSampler(range(length))
        if "--accumulate" in sys.argv:
            self.autoscale_batch_size(batch, (1, 2), gradient_accumulation=True)

    def __iter__(self):
        with self._elastic.context():
            if self._elastic.skipdone():
                return
            local_bsz = self._elastic._sync_local_bsz()
            self.sampler.set_epoch(current_epoch(), self._elastic.current_index)
            own = iter(list(self.sampler)) if self._elastic.current_index < length else ()
            for first in own:
                with self._elastic.profile(self.training):
                    yield torch.tensor([first] + [next(own) for _ in range(local_bsz - 1)])
                    self._elastic.current_index += local_bsz * env.world_size()


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(length, dtype=torch.float64))
        if "--ballast" in sys.argv:  # newcomers receive it, too: their way into the group is longer
            megabytes = int(sys.argv[sys.argv.index("--ballast") + 1])
            self.register_buffer("ballast", torch.full((megabytes << 18,), 7.0))

    def forward(self, samples):
        return self.weight[samples]


model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
stream = "--stream" in sys.argv
samples = Stream() if stream else list(range(length))
inline, own_epochs = "--inline" in sys.argv, "--own-epochs" in sys.argv


def make_loader():
    return torch.utils.data.DataLoader(samples, batch_size=batch, shuffle=not stream)


loader = make_loader()
with rubato.elastic(model, optimizer, scheduler) as job:
    totals = Accumulator()
    own_loader = OwnLoader() if "--own-loader" in sys.argv else None
    check = AdaptiveDataLoader(list(range(7)), batch_size=3)
    for epoch in range(epochs) if own_epochs else job.epochs(epochs):
        for drawn in own_loader or job.batches(make_loader() if inline else loader):
            optimizer.zero_grad()
            job.model(drawn).mean().backward()
            optimizer.step()
            if current_dataloader().is_optim_step():
                scheduler.step()  # with each batch
                totals["steps"] += 1 / env.world_size()
            pause(slow)
        if "--evaluate" in sys.argv:
            job.model.eval()
            for drawn in job.batches(torch.utils.data.DataLoader(list(range(7)), batch_size=3)) if inline else check:
                job.model(drawn)
                totals["checked"] += len(drawn)
            job.model.train()
        with totals.synchronized():
            seen = dict(totals)
    # Each contribution is 1/batch: all steps are full.
    counts = (model.weight * -batch).round(decimals=6).tolist()
    assert "--ballast" not in sys.argv or bool((model.ballast == 7).all())
    print("result", json.dumps({"counts": counts, "totals": seen, "scheduled": scheduler.last_epoch}))
