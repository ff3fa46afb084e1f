"""What scripts of AdaptDL's time import and Debian does not have: torchtext as it was, and TensorBoard's writer.

`install` puts them where imports find them, in this process and in workers that are forked from it.
"""
import collections
import importlib.util
import json
import os
import random
import sys
import types

import torch


class Field:
    def __init__(self, tokenize=str.split, init_token=None, eos_token=None, lower=False, batch_first=False):
        self.tokenize, self.lower, self.batch_first = tokenize, lower, batch_first
        self.init_token, self.eos_token, self.pad_token, self.unk_token = init_token, eos_token, "<pad>", "<unk>"

    def build_vocab(self, *datasets):
        counts = collections.Counter(token for dataset in datasets for token in dataset[0].text)
        words = [self.unk_token, self.pad_token, self.init_token, self.eos_token, *sorted(counts)]
        self.vocab = types.SimpleNamespace(itos=words, stoi={word: i for i, word in enumerate(words)})

    def numericalize(self, texts, device=None):
        numbers = [[self.vocab.stoi.get(token, 0) for token in text] for text in texts]
        return torch.tensor(numbers, device=device).t().contiguous()


class Dataset:
    def __init__(self, examples, fields):
        self.examples, self.fields = examples, dict(fields)

    def __getitem__(self, index):
        return self.examples[index]


class WikiText2:
    """A short text of a small language instead: each word says which ones may follow."""

    @staticmethod
    def splits(field):
        def make(words, seed):
            draw, text, word = random.Random(seed), [], 0
            for _ in range(words):
                word = (word * 3 + draw.choice((1, 2))) % 29
                text.append(f"word{word}")
            return Dataset([types.SimpleNamespace(text=field.tokenize(" ".join(text)))], [("text", field)])

        return make(1203, 1), make(160, 2), make(150, 3)


class SummaryWriter:
    """One line of JSON for each number."""

    def __init__(self, log_dir):
        os.makedirs(log_dir, exist_ok=True)
        self._file = open(os.path.join(log_dir, f"scalars-{os.getpid()}"), "a", encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def add_scalar(self, tag, value, global_step):
        print(json.dumps([tag, float(value), global_step]), file=self._file, flush=True)


def _module(name, **contents):
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


def install():
    utils = _module("torchtext.data.utils", get_tokenizer=lambda name: str.split)
    data = _module("torchtext.data", Field=Field, Dataset=Dataset, utils=utils)
    datasets = _module("torchtext.datasets", WikiText2=WikiText2)
    _module("torchtext", data=data, datasets=datasets)
    if importlib.util.find_spec("tensorboard") is None:
        torch.utils.tensorboard = _module("torch.utils.tensorboard", SummaryWriter=SummaryWriter)
