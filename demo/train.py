"""The demo's training: a small CNN that the library makes elastic, with a batch size that follows what learns fastest.

usage: train.py [FOLDER]        $RUBATO_OUTPUT unless given; it ends after the pass in which FOLDER/finish is there

A plain loop but for three lines (1, 2, 3). The rest that is unusual is for the demo's proof: which samples each worker
took in which step (FOLDER/samples.jsonl), from which it counts that each one has counted once in each pass.
"""
import json
import os
import sys
import time

import torch
from torch.nn.functional import cross_entropy

import rubato
from rubato import collective, env
from rubato.torch import current_dataloader, profile

SAMPLES, CLASSES, SIDE = 960, 4, 8
BATCH, BATCH_MAX = 8, 64
STEP_TIME = float(os.environ.get("DEMO_STEP_TIME", 0.03))  # a real step takes longer than this one


def pictures():
    """Number, picture and class of each sample: noise on one of four patterns; one in ten is told a class at random."""
    draw = torch.Generator().manual_seed(1)
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=draw)
    right = torch.randint(0, CLASSES, (SAMPLES,), generator=draw)
    images = patterns[right] + 1.5 * torch.randn(SAMPLES, 1, SIDE, SIDE, generator=draw)
    wrong = torch.rand(SAMPLES, generator=draw) < 0.1
    told = torch.where(wrong, torch.randint(0, CLASSES, (SAMPLES,), generator=draw), right)
    return torch.utils.data.TensorDataset(torch.arange(SAMPLES), images, told), right


def small_cnn():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Flatten(), torch.nn.Linear(16 * (SIDE // 4) ** 2, CLASSES))


def note(folder, **line):
    fd = os.open(f"{folder}/samples.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


def main(folder):
    torch.set_num_threads(1)
    data, right = pictures()
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with rubato.elastic(model, optimizer) as job:                                                            # 1
        for epoch in job.epochs(1_000_000):                                                                  # 2
            for numbers, images, told in job.batches(loader, BATCH_MAX, local_bsz_bounds=(2, 16)):           # 3
                where = {"step": profile.current().steps + 1, "generation": env.generation(), "rank": env.rank()}
                mine = numbers.tolist() if current_dataloader().weight > 0 else []  # 0: only there for the exchange
                note(folder, **where, world=env.world_size(), pid=os.getpid(), epoch=epoch, samples=mine)
                optimizer.zero_grad()
                loss = cross_entropy(job.model(images), told)
                time.sleep(STEP_TIME)
                loss.backward()
                optimizer.step()
                if not current_dataloader().dropped:  # by the loss of a worker: it is taken again
                    note(folder, done=where["step"], generation=where["generation"])
                rubato.log(loss=loss, **job.metrics())
            if collective.allreduce(int(os.path.exists(f"{folder}/finish")), max):
                break
        if env.rank() == 0:
            with torch.no_grad():
                accuracy = (model(data.tensors[1]).argmax(dim=1) == right).double().mean().item()
            note(folder, finished=profile.current().steps, epochs=epoch + 1, accuracy=accuracy)


if __name__ == "__main__":
    if "DEMO_MUTE" in os.environ:
        os.environ.pop("ADAPTDL_SUPERVISOR_URL", None)  # the number of workers follows the nodes only
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ["RUBATO_OUTPUT"])
