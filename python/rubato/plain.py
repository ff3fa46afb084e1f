"""Tensors and plain values as bytes, and back, without pickle: what comes over a network must not be able to run.

    8 bytes  length of the JSON, big-endian
    JSON     the value; {"$tensor": i} stands for the i-th tensor, {"$dict": …} for a dict, {"$tuple": …} for a tuple
    rest     the tensors, as torch.save writes a list of them; read with weights_only
"""
import io
import json

import torch


def dump(value, fileobj):
    """Throws TypeError with the path of what is neither a tensor nor plain."""
    tensors = []
    text = json.dumps(_encode(value, tensors, "state")).encode()
    fileobj.write(len(text).to_bytes(8, "big") + text)
    torch.save(tensors, fileobj)


def load(fileobj):
    """What `dump` wrote, its tensors on the CPU. Throws ValueError."""
    data = fileobj.read()
    try:
        length = int.from_bytes(data[:8], "big")
        value = json.loads(data[8 : 8 + length])
        tensors = torch.load(io.BytesIO(data[8 + length :]), map_location="cpu", weights_only=True)
        return _decode(value, tensors)
    except Exception as error:  # json's, zipfile's, pickle's and torch's have no common base
        raise ValueError(f"this is no state that the library wrote: {error}") from error


def _encode(value, tensors, path):
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"$tensor": len(tensors) - 1}
    if isinstance(value, dict):
        pairs = [[_encode(k, tensors, path), _encode(v, tensors, f"{path}[{k!r}]")] for k, v in value.items()]
        return {"$dict": pairs}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]}
    if isinstance(value, (list, set, frozenset)):
        return [_encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy's
        return value.item()
    raise TypeError(f"{path} is a {type(value).__name__}, neither a tensor nor a plain value: "
                    "keep it in a rubato.checkpoint.State of your own")


def _decode(value, tensors):
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    (kind, content), = value.items()
    if kind == "$tensor":
        return tensors[content]
    if kind == "$tuple":
        return tuple(_decode(item, tensors) for item in content)
    if kind == "$dict":
        return {_decode(key, tensors): _decode(item, tensors) for key, item in content}
    raise ValueError(f"unknown kind {kind!r}")
