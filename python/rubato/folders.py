"""FolderState: a part of a checkpoint that all workers write together, as a folder of files.

    PATH/NAME.GENERATION.COUNT.tmp/…  being written
    PATH/NAME.GENERATION.COUNT/…      whole: renamed by rank 0 when all have written, so that it travels (docs/checkpoints.md)
    PATH/checkpoint-…/NAME            which of these folders belongs to that checkpoint

A folder is whole before the checkpoint that names it is written, so that each checkpoint finds its own.
"""
import contextlib
import os
import re
import shutil
import uuid

import torch.distributed as dist

from rubato import checkpoint, collective, env, plain


class FolderState(checkpoint.State):
    """Subclasses write and read. For groups that do not change in place.

    `needs_all`: what each worker writes is needed (shards); else that of rank 0's machine is enough. Where workers have
    no folder in common, the former is refused when it is made, and of the latter the rest is left out.
    """

    needs_all = False

    def __init__(self, name):
        super().__init__(name)
        self._count, self._folder = 0, None  # of the newest
        if self.needs_all:
            self._check_shared()

    def write(self, folder):
        """On all workers, into a folder that is there already."""
        raise NotImplementedError

    def read(self, folder):
        """On all workers, from any earlier number of them."""
        raise NotImplementedError

    def values(self):
        """Plain values to be saved beside; `take` gets them back."""
        return {}

    def take(self, values):
        pass

    def _check_shared(self):
        path = env.checkpoint_path()
        if path is None or not dist.is_initialized() or dist.get_world_size() == 1:
            return
        os.makedirs(path, exist_ok=True)
        mark = os.path.join(path, "." + collective.broadcast(uuid.uuid4().hex))
        if env.rank() == 0:
            with open(mark, "w", encoding="utf-8"):
                pass
        collective.broadcast(0)
        everywhere = collective.allreduce(os.path.exists(mark), min)
        if env.rank() == 0:
            os.remove(mark)
        if not everywhere:
            raise RuntimeError(f"not all workers see the same {path}, where each of them must write its shards of "
                               f"'{self.name}': give the job a folder on a disk that all nodes mount, for example "
                               "`rubato submit -e RUBATO_CHECKPOINT=/mnt/runs/7 -e ADAPTDL_CHECKPOINT_PATH=/mnt/runs/7`, "
                               "or keep it on one node")

    def sync(self):
        """All workers write."""
        path = env.checkpoint_path()
        if path is None:
            return
        self._count += 1
        self._folder = f"{self.name}.{env.generation()}.{self._count}"
        draft = os.path.join(path, self._folder + ".tmp")
        os.makedirs(draft, exist_ok=True)
        self.write(draft)
        self._meet()  # or it could be renamed before all have written
        if env.rank() == 0:
            final = os.path.join(path, self._folder)
            shutil.rmtree(final, ignore_errors=True)  # of a life that ended before a checkpoint had named it
            os.replace(draft, final)
        self._meet()
        shutil.rmtree(draft, ignore_errors=True)  # on machines that do not share rank 0's folder

    def _path_of_folder(self):
        """Of the newest one that this worker knows of, or None."""
        path = env.checkpoint_path()
        return None if self._folder is None or path is None else os.path.join(path, self._folder)

    @staticmethod
    def _meet():
        if dist.is_initialized():
            collective.broadcast(0)

    def save(self, fileobj):
        plain.dump({"folder": self._folder, "count": self._count, **self.values()}, fileobj)
        self._remove_old()

    def _remove_old(self):
        """Those that a checkpoint names, and of the one that is being written, are kept; no draft is needed any more."""
        path = env.checkpoint_path()
        if path is None:
            return
        named = self._named(path) | {self._folder}
        own = [name for name in os.listdir(path) if re.fullmatch(re.escape(self.name) + r"\.\d+\.\d+(\.tmp)?", name)]
        whole = [os.path.join(path, name) for name in own if not name.endswith(".tmp")]
        old = [folder for folder in sorted(whole, key=os.path.getmtime)[: -(checkpoint.KEEP + 1)]
               if os.path.basename(folder) not in named]
        for folder in old + [os.path.join(path, name) for name in own if name.endswith(".tmp")]:
            shutil.rmtree(folder, ignore_errors=True)

    def _named(self, path):
        """The folders that checkpoints need: where saves have failed, older ones than the newest."""
        named = set()
        for _, folder in checkpoint._numbered(path):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # a damaged one is not read either
                with open(os.path.join(folder, self.name), "rb") as file:
                    named.add(plain.load(file, of_old_version=True)["folder"])
        return named

    def load(self, fileobj):
        saved = plain.load(fileobj, of_old_version=True)
        self._count, self._folder = saved["count"], saved["folder"]
        if self._folder is not None:
            folder = os.path.join(env.checkpoint_path(), self._folder)
            if not os.path.isdir(folder):
                raise RuntimeError(f"{folder} is not there, which the newest checkpoint of '{self.name}' needs: all workers "
                                   "need the same folder of checkpoints, on one machine or on a disk that all of them have")
            self.read(folder)
        self.take(saved)
