"""A language model, as AdaptDL's users write one: torchtext, the BPTT iterator, clipped gradients, TensorBoard.

    transformer.py EPOCHS [--autoscale-bsz]
"""
import argparse
import math
import os

import torch
import torch.nn as nn
import torchtext
from torch.utils.tensorboard import SummaryWriter
from torchtext.data.utils import get_tokenizer

import adaptdl
import adaptdl.torch as adl
from adaptdl.torch.iterator import AdaptiveBPTTIterator
from testing import pause

parser = argparse.ArgumentParser()
parser.add_argument("epochs", type=int)
parser.add_argument("--bs", type=int, default=12)
parser.add_argument("--bptt", type=int, default=8)
parser.add_argument("--autoscale-bsz", action="store_true")
parser.add_argument("--slow", type=float, default=0.0)
args = parser.parse_args()
torch.manual_seed(3)


class LanguageModel(nn.Module):
    def __init__(self, tokens, width=16, heads=2, hidden=32, layers=1):
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(args.bptt, 1, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.decoder = nn.Linear(width, tokens)

    def forward(self, text):
        mask = torch.triu(torch.full((len(text), len(text)), float("-inf")), diagonal=1)
        states = self.embedding(text) * math.sqrt(self.width) + self.places[: len(text)]
        return self.decoder(self.encoder(states, mask))


TEXT = torchtext.data.Field(tokenize=get_tokenizer("basic_english"), init_token="<sos>", eos_token="<eos>", lower=True)
train_txt, val_txt, test_txt = torchtext.datasets.WikiText2.splits(TEXT)
TEXT.build_vocab(train_txt)
ntokens = len(TEXT.vocab.stoi)

model = LanguageModel(ntokens)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.95)
adl.init_process_group("gloo")
model = adl.AdaptiveDataParallel(model, optimizer, scheduler)

bounds = dict(max_batch_size=8 * args.bs, local_bsz_bounds=(2, 48)) if args.autoscale_bsz else {}
train_iter = AdaptiveBPTTIterator(train_txt, batch_size=args.bs, bptt_len=args.bptt, **bounds)
val_iter = AdaptiveBPTTIterator(val_txt, batch_size=args.bs, bptt_len=args.bptt)
test_iter = AdaptiveBPTTIterator(test_txt, batch_size=args.bs, bptt_len=args.bptt)


def train(epoch):
    stats = adl.Accumulator()
    model.train()
    for batch in train_iter:
        optimizer.zero_grad()
        loss = criterion(model(batch.text).view(-1, ntokens), batch.target.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        stats["loss_sum"] += loss.item() * batch.target.size(1)
        stats["total"] += batch.target.size(1)
        writer.add_scalar("Throughput/Gain", model.gain, epoch)
        train_iter.to_tensorboard(writer, epoch, tag_prefix="Data")
        model.to_tensorboard(writer, epoch, tag_prefix="Model")
        pause(args.slow)
    with stats.synchronized():
        stats["loss_avg"] = stats["loss_sum"] / stats["total"]
        print("Train:", stats, flush=True)


def evaluate(batches):
    model.eval()
    stats = adl.Accumulator()
    with torch.no_grad():
        for batch in batches:
            loss = criterion(model(batch.text).view(-1, ntokens), batch.target.view(-1)).item()
            stats["loss_sum"] += loss * batch.target.numel()
            stats["total"] += batch.target.numel()
    with stats.synchronized():
        return stats["loss_sum"] / stats["total"]


tensorboard_dir = os.path.join(os.environ["ADAPTDL_TENSORBOARD_LOGDIR"], str(adaptdl.env.job_id()))
with SummaryWriter(tensorboard_dir) as writer:
    for epoch in adl.remaining_epochs_until(args.epochs):
        train(epoch)
        print(f"| end of epoch {epoch} | valid ppl {math.exp(evaluate(val_iter)):8.2f}", flush=True)
        scheduler.step()
print("test loss", evaluate(test_iter))
