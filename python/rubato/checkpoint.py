"""Checkpoints: named states, written together, whole or not there.

    PATH/checkpoint-7/STATE...        one file for each state
    PATH/checkpoint-7/manifest.json   its files with sizes and SHA-256: what is not in it does not count
    PATH/.draft-…                     being written; a crash leaves it behind, and the next save removes it

Rank 0 writes after `sync()` has run on all ranks. The folder is renamed to its name when every byte is on the disk, so
that a reader finds the newest whole one, whatever was killed when. The newest `KEEP` stay.
"""
import hashlib
import io
import json
import os
import re
import shutil
import threading
import warnings

import torch

from rubato import env

KEEP = 3
MANIFEST = "manifest.json"
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

    def snapshot(self):
        """Tensors and plain values for another worker, which gives them to `restore`. They may be the live ones."""
        buffer = io.BytesIO()
        self.save(buffer)
        return torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8) if buffer.tell() else None

    def restore(self, value):
        self.load(io.BytesIO(b"" if value is None else bytes(value.numpy())))


def _check_name(name):
    if not isinstance(name, str) or not name or "/" in name or name.startswith(".") or name == MANIFEST:
        raise ValueError(f"{name!r} cannot be the name of a state: it becomes a file's name")


def registered():
    return list(_states.values())


def unregister(state):
    _states.pop(state.name, None)


def _reset():
    wait()
    _states.clear()
    _received.clear()


# From and to other workers ----------------------------------------------------------------------------------------

_received = {}  # values of states that the script has not made yet


def snapshot():
    """What another worker needs to be as far as this one: {name: value}."""
    return {state.name: state.snapshot() for state in list(_states.values())} | _received


def receive(values):
    """Takes another worker's `snapshot` for what is here, and for what the script makes later."""
    _received.clear()
    for name, value in values.items():
        if name in _states:
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


def load_state(state):
    """True when another worker gave us this state, or the newest checkpoint had it; it is then loaded."""
    global _loading_from
    if state.name in _received:
        state.restore(_received.pop(state.name))
        return True
    path = env.checkpoint_path()
    if path is None:
        return False
    if _loading_from[0] != (path, env.generation()):
        _loading_from = ((path, env.generation()), newest(path))
    folder = _loading_from[1]
    if folder is None:
        return False
    try:
        with open(os.path.join(folder, state.name), "rb") as file:
            state.load(file)
    except FileNotFoundError:
        return False
    return True


# Writing ----------------------------------------------------------------------------------------------------------

def _write_durably(path, data):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _fsync_folder(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path, contents):
    """`contents`: the states' bytes by name. Throws OSError; what was there before is then untouched."""
    os.makedirs(path, exist_ok=True)
    for name in os.listdir(path):
        if name.startswith(".draft-"):
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)
    numbers = [number for number, _ in _numbered(path)]
    number = max(numbers + [env.generation() - 1]) + 1
    draft = os.path.join(path, f".draft-{os.getpid()}")
    os.makedirs(draft)
    files = {}
    for name, data in contents.items():
        _write_durably(os.path.join(draft, name), data)
        files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
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
        self.folder, self.error = None, None

    def run(self):
        try:
            self.folder = _write(self.path, self.contents)
        except OSError as error:
            self.error = error


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


def save_alone():
    """This worker's states, where others cannot be asked. Several may do it at once; one of them comes through."""
    path = env.checkpoint_path()
    if path is None:
        return
    try:
        wait()
        _write(path, _contents())
    except OSError as error:
        warnings.warn(f"the state could not be saved in {path}: {error}")


def _contents():
    contents = {}
    for state in registered():
        buffer = io.BytesIO()
        state.save(buffer)
        contents[state.name] = buffer.getbuffer()
    return contents


def save_all_states(background=False):
    """Saves every state; all ranks must call it. With `background`, bytes are taken now and written beside the training.

    Without a checkpoint folder (a script run by hand) nothing is saved, but states are still synchronised.
    """
    global _writer
    synchronize()
    path = env.checkpoint_path()
    if env.rank() != 0 or path is None:
        return
    contents = _contents()
    wait()
    _writer = _Writer(path, contents)
    _writer.start()
    if not background:
        wait()
