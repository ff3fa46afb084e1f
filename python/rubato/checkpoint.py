"""Checkpoints: named states, written together, whole or not there.

    PATH/checkpoint-7000002/STATE...        one file for each state
    PATH/checkpoint-7000002/manifest.json   its files with sizes and SHA-256: what is not in it does not count
    PATH/.draft-…                           being written; a crash leaves it behind, and the next save removes it

Rank 0 writes after `sync()` has run on all ranks. The folder is renamed to its name when every byte is on the disk, so
that a reader finds the newest whole one, whatever was killed when. The newest `KEEP` stay.

The number is the generation's million and a count: a later generation's is larger, also where rank 0 has moved to a
node whose folder has nothing of what the one before wrote.

A save beside the training stops it only for a copy in the memory of the host; a thread writes that one.
"""
import contextlib
import hashlib
import io
import json
import mmap
import os
import re
import shutil
import threading
import warnings

import torch

from rubato import env, plain

KEEP = 3
MANIFEST = "manifest.json"
NUMBERS_A_GENERATION = 1_000_000
_NAME = re.compile(r"checkpoint-(\d+)$")
_states = {}  # by name, in the order of registration
_writer = None


class State:
    """One named part of what a job must not lose. Names are unique; `sync` runs on all ranks, `save` on rank 0."""

    def __init__(self, name):
        if name in _states:
            raise ValueError(f"a state named {name!r} exists already: give each one a name of its own")
        _check_name(name)
        self.name = name
        _states[name] = self

    def sync(self):
        pass

    def save(self, fileobj):
        pass

    def load(self, fileobj):
        pass

    def freeze(self, buffers):
        """What `save` would write now, as bytes or with a method `write(fileobj)`, which another thread calls later.

        Large states copy their tensors into `buffers` (see `frozen`) rather than being serialised while training waits;
        without `buffers` nothing changes until it is written.
        """
        buffer = io.BytesIO()
        self.save(buffer)
        return buffer.getbuffer()

    def snapshot(self):
        """Tensors and plain values for another worker, which gives them to `restore`. They may be the live ones."""
        buffer = io.BytesIO()
        self.save(buffer)
        return torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8) if buffer.tell() else None

    def restore(self, value):
        self.load(io.BytesIO(b"" if value is None else bytes(value.numpy())))


def _check_name(name):
    if not isinstance(name, str) or not name or "/" in name or name in (".", "..", MANIFEST):
        raise ValueError(f"{name!r} cannot be the name of a state: it becomes a file's name")


def registered():
    return list(_states.values())


def is_registered(state):
    return _states.get(state.name) is state


def unregister(name):
    _states.pop(name, None)


def register_again(state, name):
    """One that was unregistered."""
    state.name = name
    _states[name] = state


def _reset():
    global _loading_from, _begun
    wait()
    for known in (_states, _received, _unclaimed):
        known.clear()
    _loading_from, _begun = (None, None), False


# From and to other workers ----------------------------------------------------------------------------------------

_received = {}  # values of states that the script has not made yet


def snapshot():
    """What another worker needs to be as far as this one: {name: value}; under "", files of what nobody has made yet."""
    values = {state.name: state.snapshot() for state in list(_states.values())} | _received
    files = {name: _read(found) for name, found in _unclaimed.items() if name not in values}
    return values | {"": {name: data for name, data in files.items() if data is not None}}


def _read(found):
    if isinstance(found, bytes):
        return found
    with contextlib.suppress(FileNotFoundError), open(found, "rb") as file:
        return file.read()
    return None  # an old checkpoint, which made way for newer ones


def receive(values):
    """Takes another worker's `snapshot` for what is here, and for what the script makes later."""
    global _begun
    _received.clear()
    _unclaimed.clear()
    _begun = True
    for name, value in values.items():
        if name == "":
            _unclaimed.update((one, data) for one, data in value.items() if one not in _states)
        elif name in _states:
            _states[name].restore(value)
        else:
            _received[name] = value


# Reading ----------------------------------------------------------------------------------------------------------

def _numbered(path):
    """(number, folder) of all checkpoints, the newest first."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return []
    found = [(int(match.group(1)), os.path.join(path, name)) for name in names if (match := _NAME.match(name))]
    return sorted(found, reverse=True)


def _digest(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _damage(folder):
    """What is wrong with it, or None. A folder without a manifest is one of AdaptDL's: it is taken as it is."""
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            files = json.load(file)["files"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        return f"its manifest cannot be read: {error}"
    for name, entry in files.items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path) or os.path.getsize(path) != entry["size"]:
            return f"'{name}' is missing or has another size"
        if _digest(path) != entry["sha256"]:
            return f"'{name}' was changed after it was saved"
    return None


def newest(path=None):
    """The folder of the newest whole checkpoint, or None. Says which ones it passes over, and why."""
    path = path or env.checkpoint_path()
    if path is None:
        return None
    for _, folder in _numbered(path):
        reason = _damage(folder)
        if reason is None:
            return folder
        warnings.warn(f"checkpoint {folder} is not used: {reason}")
    return None


_loading_from = (None, None)  # (path, its newest): one look for all states of a start
_begun = False  # this life knows what it began from
_unclaimed = {}  # of that, what the script has not made yet: name -> path of a file, or its bytes


def load_state(state):
    """True when another worker gave us this state, or the newest checkpoint had it; it is then loaded."""
    if state.name in _received:
        return load_first(state)
    folder = _newest_of_start()
    if folder is not None and os.path.exists(os.path.join(folder, state.name)):
        _unclaimed.pop(state.name, None)
        _load_file(state, os.path.join(folder, state.name))
        return True
    return load_first(state)


def load_first(state):
    """As load_state, for what scripts make again and again: only what this life began from is looked at.

    To check a large checkpoint takes seconds; and what was saved since then is a state that this worker has been in.
    """
    global _begun, _unclaimed
    if state.name in _received:
        _unclaimed.pop(state.name, None)
        state.restore(_received.pop(state.name))
        return True
    if not _begun and env.checkpoint_path() is not None:
        _begun, folder = True, _newest_of_start()
        names = os.listdir(folder) if folder is not None else ()
        _unclaimed = {name: os.path.join(folder, name) for name in names
                      if name != MANIFEST and (name == state.name or name not in _states)}
    found = _unclaimed.pop(state.name, None)
    if found is None or not (isinstance(found, bytes) or os.path.exists(found)):
        return False
    _load_file(state, found)
    return True


def _newest_of_start():
    global _loading_from
    path = env.checkpoint_path()
    if path is not None and _loading_from[0] != (path, env.generation()):
        _loading_from = ((path, env.generation()), newest(path))
    return _loading_from[1] if path is not None else None


def _load_file(state, found):
    """`found`: its path, or its bytes."""
    if isinstance(found, bytes):
        state.load(io.BytesIO(found))
        return
    folder = os.path.dirname(found)
    with open(found, "rb") as file:
        try:
            state.load(file)
        except Exception as error:
            if os.path.exists(os.path.join(folder, MANIFEST)):
                raise
            raise RuntimeError(f"{folder} was not written by this library, and '{state.name}' of it cannot be read. What "
                               "AdaptDL's own package has saved goes on with that package, where it is installed; to begin "
                               "anew, give another ADAPTDL_CHECKPOINT_PATH") from error


# Writing ----------------------------------------------------------------------------------------------------------

class _Hashed:
    """A file that is being written, with its size and hash."""

    def __init__(self, file):
        self._file, self._digest, self._size = file, hashlib.sha256(), 0

    def write(self, data):
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)

    def entry(self):
        return {"size": self._size, "sha256": self._digest.hexdigest()}


def _write_durably(path, content):
    """`content`: bytes, or what has `write(fileobj)`. Returns its size and hash, for the manifest."""
    with open(path, "wb") as file:
        hashed = _Hashed(file)
        if hasattr(content, "write"):
            content.write(hashed)
        else:
            hashed.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashed.entry()


def _fsync_folder(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path, contents, generation):
    """`contents`: the states by name, as they were in `generation`, frozen. Where it throws, what was there before is untouched."""
    os.makedirs(path, exist_ok=True)
    for name in os.listdir(path):
        if name.startswith(".draft-"):
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)
    numbers = [number for number, _ in _numbered(path)]
    number = max(numbers + [generation * NUMBERS_A_GENERATION - 1]) + 1
    draft = os.path.join(path, f".draft-{os.getpid()}")
    os.makedirs(draft)
    files = {name: _write_durably(os.path.join(draft, name), content) for name, content in contents.items()}
    manifest = json.dumps({"version": 1, "files": files}, indent=1).encode()
    _write_durably(os.path.join(draft, MANIFEST), manifest)
    _fsync_folder(draft)
    final = os.path.join(path, f"checkpoint-{number}")
    os.rename(draft, final)
    _fsync_folder(path)
    for _, folder in _numbered(path)[KEEP:]:
        shutil.rmtree(folder, ignore_errors=True)
    return final


class _Writer(threading.Thread):
    def __init__(self, path, contents):
        super().__init__(name="rubato-checkpoint", daemon=False)
        self.path, self.contents = path, contents
        self.generation = env.generation()  # it may be a later one when the disk gets to it
        self.folder, self.error = None, None

    def run(self):
        try:
            self.folder = _write(self.path, self.contents, self.generation)
        except BaseException as error:  # a state may throw anything: whatever it is, nothing was saved
            self.error = error
        finally:
            self.contents = None


class _Buffers:
    """Memory of the host for one copy of all tensors, kept from save to save: fresh pages cost more than the copy."""

    def __init__(self):
        self._memory = None  # bytes
        self._used = 0
        self._maker = None

    def make(self, tensors):
        """In a thread: a first copy of these will find its memory ready."""
        if self._memory is None and self._maker is None:
            size, for_gpu = _bytes_of(tensors), any(tensor.is_cuda for tensor in tensors)
            self._maker = threading.Thread(target=self._make, args=(size, for_gpu), name="rubato-buffers", daemon=True)
            self._maker.start()

    def _make(self, size, for_gpu):
        memory = _host_memory(size, for_gpu) if size else None
        if memory is not None and not for_gpu:
            memory.zero_()  # now every page is there
        self._memory = memory

    def begin(self, tensors):
        """Makes room for copies of these; the copies of the last time are given up."""
        if self._maker is not None:
            self._maker.join()
            self._maker = None
        self._used = 0
        size = _bytes_of(tensors)
        if size > 0 and (self._memory is None or self._memory.numel() < size):
            self._memory = None
            self._memory = _host_memory(size, any(tensor.is_cuda for tensor in tensors))

    def copy(self, tensor):
        """Complete when the GPU, if there is one, has done what it was given."""
        size = tensor.numel() * tensor.element_size()
        place = self._memory[self._used : self._used + size] if size else torch.empty(0, dtype=torch.uint8)
        self._used += _aligned(size)
        copied = place.view(tensor.dtype).view(tensor.shape)
        copied.copy_(tensor, non_blocking=tensor.is_cuda)
        return copied

    def clear(self):
        if self._maker is None or not self._maker.is_alive():
            self._maker, self._memory, self._used = None, None, 0


def _bytes_of(tensors):
    return sum(_aligned(tensor.numel() * tensor.element_size()) for tensor in tensors)


def _host_memory(size, for_gpu):
    if for_gpu:
        with contextlib.suppress(RuntimeError):  # where so much cannot be pinned, the copy is slower
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel may have none
            pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)


def _aligned(size):
    return (size + 63) & ~63


_buffers = _Buffers()


class _Room:
    """Given to `freeze`: collects what is to be copied, so that one piece of memory is made for all of it."""

    def __init__(self):
        self.documents = []

    def tensors(self):
        return [tensor for document in self.documents for tensor in document.tensors]

    def copy(self):
        tensors = self.tensors()
        _buffers.begin(tensors)
        for document in self.documents:
            document.tensors = [_buffers.copy(tensor) for tensor in document.tensors]
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:  # a model may be spread over several
            torch.cuda.synchronize(device)


def frozen(value, buffers):
    """For `State.freeze`: tensors and plain values, as plain.dump writes them."""
    document = plain.Document(value)
    if buffers is not None:
        buffers.documents.append(document)
    return document


def synchronize():
    """Puts together what only some workers know; all of them must call it. Throws collective.Cancelled."""
    from rubato import collective

    with collective.while_it_lasts():
        for state in registered():
            state.sync()


def wait():
    """Until what `save` began is on the disk. Returns its folder. Throws what went wrong there."""
    global _writer
    if _writer is None:
        return None
    writer, _writer = _writer, None
    writer.join()
    if writer.error is not None:
        raise writer.error
    return writer.folder


def prepare():
    """Some time before the first save beside the training: its memory is made by a thread meanwhile."""
    if env.rank() == 0 and env.checkpoint_path() is not None:
        room = _Room()
        for state in registered():
            if type(state).freeze is not State.freeze:
                state.freeze(room)
        _buffers.make(room.tensors())


def is_writing():
    """Whether a save beside the training has not come to its end."""
    return _writer is not None and _writer.is_alive()


def save_alone():
    """This worker's states, where others cannot be asked. Several may do it at once; one of them comes through."""
    path = env.checkpoint_path()
    if path is None:
        return
    try:
        _end_background()
        _write(path, {state.name: state.freeze(None) for state in registered()}, env.generation())
    except Exception as error:
        warnings.warn(f"the state could not be saved in {path}: {error!r}")


def _end_background():
    """Before another save. What went wrong in the last one is no reason not to try this one."""
    try:
        wait()
    except Exception as error:
        warnings.warn(f"a checkpoint could not be written: {error!r}")


def save_all_states(background=False):
    """Saves every state; all ranks must call it. With `background`, they are copied now and written beside the training.

    One that is being written beside the training is waited for. Without a checkpoint folder (a script run by hand)
    nothing is saved, but states are still synchronised. Rank 0 gets the folder of the checkpoints.
    """
    global _writer, _loading_from
    synchronize()
    _loading_from = (None, None)
    path = env.checkpoint_path()
    if env.rank() != 0 or path is None:
        if not is_writing():
            _buffers.clear()  # rank 0 is another one now
        return None
    _end_background()
    room = _Room() if background else None
    contents = {state.name: state.freeze(room) for state in registered()}
    if room is not None:
        room.copy()
    _writer = _Writer(path, contents)
    _writer.start()
    if not background:
        wait()
    return path
