"""Tensors and plain values as bytes, and back, without pickle: what comes over a network must not be able to run.

    8 bytes  length of the JSON, big-endian
    JSON     the value; {"$tensor": i} stands for the i-th tensor, {"$array": i} for one of numpy, {"$dict": …} for a
             dict, and so for tuples, sets and bytes
    rest     the tensors, as torch.save writes a list of them; read with weights_only; nothing where there are none
"""
import base64
import io
import json

import torch


def dump(value, fileobj):
    """Throws TypeError with the path of what is neither a tensor nor plain."""
    tensors = []
    text = json.dumps(encode(value, tensors, "state")).encode()
    fileobj.write(len(text).to_bytes(8, "big") + text)
    if tensors:
        torch.save(tensors, fileobj)


def load(fileobj):
    """What `dump` wrote, its tensors on the CPU. Throws ValueError."""
    data = fileobj.read()
    try:
        length = int.from_bytes(data[:8], "big")
        value = json.loads(data[8 : 8 + length])
        rest = data[8 + length :]
        tensors = torch.load(io.BytesIO(rest), map_location="cpu", weights_only=True) if rest else []
        return decode(value, tensors)
    except Exception as error:  # json's, zipfile's, pickle's and torch's have no common base
        raise ValueError(f"this is no state that the library wrote: {error}") from error


def encode(value, tensors, path):
    """A value for JSON; what it refers to is appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"$tensor": len(tensors) - 1}
    if isinstance(value, dict):
        pairs = [[encode(k, tensors, path), encode(v, tensors, f"{path}[{k!r}]")] for k, v in value.items()]
        return {"$dict": pairs}
    if isinstance(value, tuple):
        return {"$tuple": [encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]}
    if isinstance(value, (set, frozenset)):
        return {"$set": [encode(v, tensors, path) for v in value]}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if type(value).__module__ == "numpy" and getattr(value, "shape", ()) != () and value.dtype.kind in "fiub":
        tensors.append(torch.from_numpy(value.copy()))
        return {"$array": len(tensors) - 1}
    if isinstance(value, list):
        return [encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy's
        return value.item()
    raise TypeError(f"{path} is a {type(value).__name__}, neither a tensor nor a plain value: "
                    "keep it in a rubato.checkpoint.State of your own")


def decode(value, tensors):
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    (kind, content), = value.items()
    if kind == "$tensor":
        return tensors[content]
    if kind == "$array":
        return tensors[content].numpy()
    if kind == "$set":
        return {decode(item, tensors) for item in content}
    if kind == "$bytes":
        return base64.b64decode(content)
    if kind == "$tuple":
        return tuple(decode(item, tensors) for item in content)
    if kind == "$dict":
        return {decode(key, tensors): decode(item, tensors) for key, item in content}
    raise ValueError(f"unknown kind {kind!r}")
