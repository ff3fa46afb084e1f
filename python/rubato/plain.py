"""Tensors and plain values as bytes, and back, without pickle: what comes over a network must not be able to run.

    8 bytes  length of the JSON, big-endian
    JSON     {"value": …, "tensors": [[kind, shape], …]}; in the value {"$tensor": i} stands for the i-th tensor,
             {"$array": i} for one of numpy, {"$sparse": [i, j, shape, coalesced]} for a sparse one of indices and
             values, {"$dict": …} for a dict, and so for tuples, sets and bytes
    rest     the tensors' bytes, one after the other

Files of Rubato 0.1 have only the value as JSON, and their tensors as torch.save writes a list of them.
"""
import base64
import collections
import io
import json
import math

import torch

_NAMES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
          "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64")  # the last ones are PyTorch 2's
KINDS = {str(getattr(torch, name)): getattr(torch, name) for name in _NAMES if hasattr(torch, name)}
_SMALL_BYTES = 64 << 10  # tensors below it are written together


class Document:
    """A value as it will be written. `tensors` may be the live ones: they must stay as they are until `write`."""

    def __init__(self, value, place="state"):
        """Throws TypeError with the path of what is neither a tensor nor plain."""
        tensors = []
        self._structure = encode(value, tensors, place)
        self.tensors = [as_plain(tensor) for tensor in tensors]

    def header(self):
        kinds = [[str(tensor.dtype), list(tensor.shape)] for tensor in self.tensors]
        return json.dumps({"value": self._structure, "tensors": kinds}).encode()

    def write(self, fileobj):
        text = self.header()
        small = [len(text).to_bytes(8, "big"), text]
        for tensor in self.tensors:
            data = as_bytes(tensor.cpu().contiguous()).numpy()
            if data.nbytes < _SMALL_BYTES:
                small.append(data.tobytes())
                continue
            fileobj.write(b"".join(small))
            small = []
            fileobj.write(memoryview(data))
        fileobj.write(b"".join(small))


def dump(value, fileobj):
    """Throws TypeError with the path of what is neither a tensor nor plain."""
    Document(value).write(fileobj)


def load(fileobj, of_old_version=False):
    """What `dump` wrote, its tensors on the CPU. Throws ValueError. `of_old_version`: it may be a file of Rubato 0.1."""
    try:
        length = int.from_bytes(fileobj.read(8), "big")
        document = json.loads(fileobj.read(min(length, _left(fileobj))))
        if not isinstance(document, dict) or set(document) != {"value", "tensors"}:
            return _load_old(document, fileobj, of_old_version)
        return decode(document["value"], _read_tensors(document["tensors"], fileobj))
    except Exception as error:  # json's, zipfile's, pickle's and torch's have no common base
        raise ValueError(f"this is no state that the library wrote: {error}") from error


def _left(fileobj):
    at = fileobj.tell()
    end = fileobj.seek(0, io.SEEK_END)
    fileobj.seek(at)
    return end - at


def _load_old(value, fileobj, allowed):
    rest = fileobj.read()
    if not rest:
        return decode(value, [])
    if not allowed:
        raise ValueError("its tensors are in the format of Rubato 0.1, which is read from files only")
    return decode(value, torch.load(io.BytesIO(rest), map_location="cpu", weights_only=True))


def _read_tensors(descriptions, fileobj):
    shapes = [(KINDS[kind], [int(size) for size in shape]) for kind, shape in descriptions]
    if any(size < 0 for _, shape in shapes for size in shape):
        raise ValueError("a tensor has a negative size")
    wanted = sum(math.prod(shape) * torch.empty(0, dtype=kind).element_size() for kind, shape in shapes)
    if wanted != _left(fileobj):  # before anything of that size is allocated
        raise ValueError(f"its tensors have {_left(fileobj)} bytes, not {wanted}")
    tensors = [torch.empty(shape, dtype=kind) for kind, shape in shapes]
    for tensor in tensors:
        view = memoryview(as_bytes(tensor).numpy())
        while len(view):
            count = fileobj.readinto(view)
            if not count:
                raise ValueError("it ends in the middle of a tensor")
            view = view[count:]
    return tensors


def as_plain(tensor):
    """Itself, or what has the same numbers as bytes in memory. Throws TypeError for kinds that have none."""
    tensor = tensor.detach()
    if str(tensor.dtype) not in KINDS:
        raise TypeError(f"a tensor of the kind {tensor.dtype} has no plain bytes: keep it in a rubato.checkpoint.State of "
                        "your own")
    return tensor.resolve_conj().resolve_neg()


def as_bytes(tensor):
    """Its memory; it must be contiguous. A scalar has no view of another kind in PyTorch 1.13."""
    return tensor.reshape(-1).view(torch.uint8)


def encode(value, tensors, path):
    """A value for JSON; what it refers to is appended to `tensors`."""
    if isinstance(value, torch.Tensor) and value.layout == torch.sparse_coo:
        value = value.detach()
        tensors += [value._indices(), value._values()]
        return {"$sparse": [len(tensors) - 2, len(tensors) - 1, list(value.shape), value.is_coalesced()]}
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or getattr(value, "is_nested", False):
            raise TypeError(f"{path} is a tensor of the layout {value.layout}, which has no plain bytes: keep it in a "
                            "rubato.checkpoint.State of your own")
        tensors.append(value.detach())
        return {"$tensor": len(tensors) - 1}
    if type(value) is collections.Counter:  # milestones of a scheduler
        return {"$counter": encode(dict(value), tensors, path)}
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
    if kind == "$sparse":
        indices, values, shape, coalesced = content
        return _sparse(tensors[indices], tensors[values], shape, coalesced)
    if kind == "$array":
        return tensors[content].numpy()
    if kind == "$set":
        return {decode(item, tensors) for item in content}
    if kind == "$bytes":
        return base64.b64decode(content)
    if kind == "$tuple":
        return tuple(decode(item, tensors) for item in content)
    if kind == "$counter":
        return collections.Counter(decode(content, tensors))
    if kind == "$dict":
        return {decode(key, tensors): decode(item, tensors) for key, item in content}
    raise ValueError(f"unknown kind {kind!r}")


def _sparse(indices, values, shape, coalesced):
    """PyTorch 2 does not look at indices, which may come from a network."""
    sizes = torch.tensor(shape, dtype=torch.int64)
    if indices.dim() != 2 or not 0 < indices.shape[0] <= len(shape):
        raise ValueError("a sparse tensor has indices of another shape")
    if bool((indices < 0).any()) or bool((indices >= sizes[: indices.shape[0], None]).any()):
        raise ValueError("a sparse tensor has indices outside of it")
    made = torch.sparse_coo_tensor(indices, values, shape)
    return made.coalesce() if coalesced else made
