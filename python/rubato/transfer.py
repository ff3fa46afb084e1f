"""The states of one member to those that lack them: along a chain, in chunks, never pickled.

    source ──▶ needy 1 ──▶ needy 2 …        each one passes a chunk on while it receives the next

Members that have the state take no part. A description goes first (JSON, as in plain.py, with kinds and shapes of the
tensors), then the tensors' bytes: large ones straight from and into their memory, small ones packed together.
"""
import json

import torch
import torch.distributed as dist

from rubato import checkpoint, plain

CHUNK_BYTES = 8 << 20
_SMALL_BYTES = 64 << 10


def exchange(choice, rank, group):
    """What was received, as {name: value}, on those that lack it; None on the others. Throws when a member fails."""
    chain = (choice.source,) + choice.needy
    if rank not in chain:
        return None
    place = chain.index(rank)
    link = _Link(chain[place - 1] if place > 0 else None, chain[place + 1] if place + 1 < len(chain) else None, group)
    if place == 0:
        _send(link, checkpoint.snapshot())
        return None
    return _receive(link)


class _Link:
    """The neighbours in the chain. `pass_on` fills a buffer from the one before, and gives it to the one after."""

    def __init__(self, before, after, group):
        self._before, self._after, self._group = before, after, group
        self._under_way = []

    def pass_on(self, buffer):
        for chunk in buffer.split(CHUNK_BYTES) if buffer.numel() else ():
            if self._before is not None:
                dist.recv(chunk, self._before, group=self._group)
            if self._after is not None:
                self._under_way.append((dist.isend(chunk, self._after, group=self._group), chunk))

    def finish(self):
        for work, _ in self._under_way:
            work.wait()


def _send(link, values):
    document = plain.Document(values, "states")
    text = torch.frombuffer(bytearray(document.header()), dtype=torch.uint8)
    link.pass_on(torch.tensor([text.numel()], dtype=torch.int64).view(torch.uint8))
    link.pass_on(text)
    views = [plain.as_bytes(tensor.cpu().contiguous()) for tensor in document.tensors]
    small = [view for view in views if view.numel() < _SMALL_BYTES]
    link.pass_on(torch.cat(small) if small else torch.empty(0, dtype=torch.uint8))
    for view in views:
        if view.numel() >= _SMALL_BYTES:
            link.pass_on(view)
    link.finish()


def _receive(link):
    length = torch.zeros(8, dtype=torch.uint8)
    link.pass_on(length)
    text = torch.empty(int(length.view(torch.int64)), dtype=torch.uint8)
    link.pass_on(text)
    description = json.loads(bytes(text.numpy()))
    tensors = [torch.empty(shape, dtype=plain.KINDS[kind]) for kind, shape in description["tensors"]]
    views = [plain.as_bytes(tensor) for tensor in tensors]
    small = [view for view in views if view.numel() < _SMALL_BYTES]
    packed = torch.empty(sum(view.numel() for view in small), dtype=torch.uint8)
    link.pass_on(packed)
    for view, piece in zip(small, packed.split([view.numel() for view in small])):
        view.copy_(piece)
    for view in views:
        if view.numel() >= _SMALL_BYTES:
            link.pass_on(view)
    link.finish()
    return plain.decode(description["value"], tensors)

