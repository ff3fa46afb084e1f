"""AdaptiveBPTTIterator: a text in columns, read by all workers together, window by window.

The text is cut into `batch_size` columns of the same length, whatever the number of workers, and each column into
windows of `bptt_len` tokens. One window of one column is a sample of the pass, in this order:

    column     0   1   2   3
    window 0   0   1   2   3        a batch of 4: each worker has columns of its own, and reads on in them
    window 1   4   5   6   7        a batch of 6 (autoscaled): windows that follow each other
    window 2   8   9  10  11        shorter than the others: in batches of its own

So each token is predicted once in a pass, over any sequence of changes.
"""
import math

import torch
from torch.utils.data import Dataset

from rubato.torch.data import AdaptiveDataLoader


class AdaptiveBPTTIterator(AdaptiveDataLoader):
    """For `dataset`, one of torchtext's with a single text and a field "text" that numericalizes it, or a tensor of
    token numbers. Gives batches with `text` and `target`, of the shape (tokens, this worker's columns); where the field
    says batch_first, the other way round. Sorting and the like have no meaning for one text, and are not looked at.
    """

    def __init__(self, dataset, batch_size, bptt_len, sort_key=None, device=None, batch_size_fn=None, train=True,
                 repeat=False, shuffle=None, sort=None, sort_within_batch=None, max_batch_size=None,
                 local_bsz_bounds=None):
        if repeat:
            raise ValueError("repeat=True has no end: loop over remaining_epochs_until(…) instead")
        if not isinstance(bptt_len, int) or bptt_len < 1:
            raise ValueError(f"bptt_len must be a whole number above 0, not {bptt_len!r}")
        self.bptt_len, self.device, self.train, self.repeat = bptt_len, device, train, repeat
        self._windows = _Windows(dataset, batch_size, bptt_len)
        super().__init__(self._windows, batch_size, collate_fn=self._batch)
        self._elastic.equal_shares = False  # a worker reads on in its columns
        if max_batch_size and local_bsz_bounds:
            self.autoscale_batch_size(max_batch_size, local_bsz_bounds)

    def __len__(self):
        total, _ = self._elastic.micro_sizes()
        ends = (0, *self._sections())
        return sum(math.ceil((end - start) / total) for start, end in zip(ends, ends[1:]))

    def _sections(self):
        return self._windows.sections()

    def _ends_by_progress(self):
        return False  # nor does AdaptDL's

    def _batch(self, samples):
        text, target = self._windows.read(samples)
        if self._windows.batch_first:
            text, target = text.t().contiguous(), target.t().contiguous()
        return Batch(self._windows.source, text.to(self.device), target.to(self.device), len(samples))


class Batch:
    """What scripts expect of torchtext's."""

    def __init__(self, dataset, text, target, batch_size):
        self.dataset, self.text, self.target, self.batch_size = dataset, text, target, batch_size
        self.input_fields, self.target_fields = ["text"], ["target"]

    def __len__(self):
        return self.batch_size

    def __repr__(self):
        return f"Batch of {self.batch_size}: text {tuple(self.text.shape)}, target {tuple(self.target.shape)}"


class _Windows(Dataset):
    def __init__(self, source, columns, bptt_len):
        self.source, self._columns, self._bptt_len = source, columns, bptt_len
        self._field = None if isinstance(source, torch.Tensor) else source.fields["text"]
        self.batch_first = getattr(self._field, "batch_first", False)
        self._tokens = None  # rows by columns; a vocabulary may be built after the iterator

    def _rows(self):
        length = len(self.source if self._field is None else self.source[0].text)
        return math.ceil(length / self._columns)

    def _predicted(self):
        """Tokens of a column that are a target: all but the first."""
        return max(self._rows() - 1, 0)

    def __len__(self):
        return math.ceil(self._predicted() / self._bptt_len) * self._columns

    def sections(self):
        """Whole windows, and the last one where it is shorter."""
        whole = self._predicted() // self._bptt_len * self._columns
        return tuple(end for end in sorted({whole, len(self)}) if end)

    def __getitem__(self, index):
        return index  # `read` takes the tokens of all of them together

    def read(self, samples):
        if self._tokens is None:
            self._tokens = self._numbers().view(self._columns, -1).t().contiguous()
        samples = torch.tensor(samples)
        start = torch.div(samples, self._columns, rounding_mode="floor") * self._bptt_len
        length = min(self._bptt_len, self._predicted() - int(start[0]))
        rows, columns = start + torch.arange(length).unsqueeze(1), samples % self._columns
        return self._tokens[rows, columns], self._tokens[rows + 1, columns]

    def _numbers(self):
        """The text as one tensor, padded so that its columns are equally long."""
        if self._field is None:
            missing = self._rows() * self._columns - len(self.source)
            return torch.cat([self.source, self.source.new_zeros(missing)])
        text = list(self.source[0].text)
        text += [self._field.pad_token] * (self._rows() * self._columns - len(text))
        return self._field.numericalize([text], device="cpu").reshape(-1)
