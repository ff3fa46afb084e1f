"""Models whose parameters are spread over the workers (FSDP2, DTensor), saved in shards by all of them and shared out
anew among however many there are: `ShardedState` in the next life, `ShardedModel` also in the same one.

What torch.distributed.checkpoint writes is a folder of its own, one file or more of each worker (folders.py). All
workers must see the same folder of checkpoints: one machine, or a disk that all of them have. Needs PyTorch 2.4.
"""
import os
import sys
import warnings

import torch
import torch.distributed as dist

from rubato import checkpoint, env, group, plain
from rubato.folders import FolderState
from rubato.torch import data, profile, schedules


class _Shards(FolderState):
    """Writes and reads what subclasses say: a model, its optimizers, and a scheduler or None."""

    needs_all = True

    def __init__(self, name):
        self._checkpoint, self._state_dict, self._init_mesh = _distributed_checkpoint()
        super().__init__(name)
        data.Loop.sharded.add(self)

    def _objects(self):
        """(model, tuple of optimizers, scheduler)"""
        raise NotImplementedError

    def write(self, folder):
        self._checkpoint.save(self._parts(), checkpoint_id=folder)

    def _parts(self):
        model, optimizers, _ = self._objects()
        model, optimizer = self._state_dict.get_state_dict(model, optimizers)
        return {"model": model, "optimizer": optimizer}

    def read(self, folder):
        """Each worker reads what it is to have; the shards were those of any number of workers."""
        parts = self._parts()
        self._checkpoint.load(parts, checkpoint_id=folder)
        model, optimizers, _ = self._objects()
        self._state_dict.set_state_dict(model, optimizers, model_state_dict=parts["model"],
                                        optim_state_dict=parts["optimizer"])

    def values(self):
        scheduler = self._objects()[2]
        return {"lr_scheduler": None if scheduler is None else schedules.state_of(scheduler)}

    def take(self, values):
        scheduler = self._objects()[2]
        if scheduler is not None and values["lr_scheduler"] is not None:
            schedules.load(scheduler, values["lr_scheduler"])


class ShardedState(_Shards):
    """Make it after model and optimizer, on all workers, in a group that does not change in place:

        rubato.torch.init_process_group(in_place=False)
        model = fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        ShardedState(model, optimizer, lr_scheduler)
    """

    def __init__(self, model, optimizer=None, lr_scheduler=None, name="rubato-sharded"):
        if group.current() is not None:
            raise RuntimeError("shards of a model that is there cannot be given to others in place: give ShardedModel a "
                               "function that makes it, or call rubato.torch.init_process_group(in_place=False) before")
        self._all = model, () if optimizer is None else (optimizer,), lr_scheduler
        super().__init__(name)
        checkpoint.load_state(self)

    def _objects(self):
        return self._all


class ShardedModel(_Shards):
    """A model that is made, and shared out, anew in each group; in groups that change in place, too:

        def make(mesh):                                    # on all workers, in each group
            model = fully_shard(Net(), mesh=mesh)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer                        # and a scheduler, if there is one

        rubato.torch.init_process_group()
        shards = ShardedModel(make)
        for epoch in remaining_epochs_until(30):
            for inputs, targets in loader:
                loss = loss_fn(shards.model(inputs), targets) * current_dataloader().weight
                loss.backward()
                shards.optimizer.step()

    Ask it for `model`, `optimizer` and `lr_scheduler` in each step: after a change they are others. Where the group may
    change in place they are there from the first epoch or loop on: a worker that comes later has nobody to share with
    before. When the group changes all write their shards after the same step, meet, and read them as they are shared out
    then. When a worker dies in a step its shards are lost: the others end, and all begin from the newest checkpoint.

    `mesh` is of one dimension, of all workers, on `device` (GPUs with NCCL, else CPUs). Take no other one without a
    generation in the names of its dimensions: PyTorch keeps what it has worked out for a mesh for those that are equal,
    and in a later group of the same size a worker may have another rank.
    """

    def __init__(self, make, name="rubato-sharded", device=None):
        self._make, self._made, self._device = make, None, device
        self._saved_values = {"lr_scheduler": None}
        self._stale = False  # a step has counted since the shards were written
        self._planned = group.current()
        super().__init__(name)
        data.step_listeners.add(self)
        if self._planned is None:
            self._build()
        checkpoint.load_state(self)
        if self._planned is not None:
            self._planned.on_leave(self._forget)
            self._planned.on_meeting(self._meet_others)

    @property
    def model(self):
        return self._objects()[0]

    @property
    def optimizer(self):
        return self._objects()[1][0]

    @property
    def lr_scheduler(self):
        return self._objects()[2]

    def _objects(self):
        if self._made is None:
            raise RuntimeError("the model is shared out when the workers have met: ask for it inside an epoch or a loop of "
                               "the library")
        return self._made

    def _mesh(self):
        if not dist.is_initialized():
            raise RuntimeError("call rubato.torch.init_process_group() before ShardedModel")
        device = self._device or ("cuda" if dist.get_backend() == "nccl" else "cpu")
        return self._init_mesh(device, (dist.get_world_size(),), mesh_dim_names=(f"workers_of_{env.generation()}",))

    def _build(self):
        model, optimizer, *scheduler = self._make(self._mesh())
        self._made = model, (optimizer,), scheduler[0] if scheduler else None

    def _check_shared(self):
        if self._planned is None:  # else the group may be another one before all have come to this line
            super()._check_shared()

    def sync(self):
        if self._made is None:
            return
        super().sync()
        self._saved_values = super().values()
        self._stale = False

    def values(self):
        return self._saved_values if self._made is None else super().values()

    def load(self, fileobj):
        if self._planned is None:
            super().load(fileobj)
            return
        saved = plain.load(fileobj, of_old_version=True)
        self._count, self._folder = saved["count"], saved["folder"]
        self._saved_values = {"lr_scheduler": saved["lr_scheduler"]}

    def commit(self, counted):
        """A step has ended."""
        self._stale = self._stale or counted
        loop = data.Loop.current
        if not counted or self._planned is None or (loop is not None and loop.counted):
            return
        profile.current().steps += 1  # no AdaptiveDataParallel does
        self._planned.count_step()

    # In a group that changes in place ----------------------------------------------------------------------------------

    def _forget(self):
        """What is spread over a group is of no use in another one, and would keep its memory."""
        self._made = None
        return ()

    def _meet_others(self):
        """In the new group, on all members. Throws RuntimeError when one of them dies meanwhile: then once more."""
        stale = torch.tensor([int(self._stale)])
        dist.all_reduce(stale, op=dist.ReduceOp.MAX, group=self._planned.control_group())
        if stale:
            warnings.warn("a worker was lost, and its shards with it: all begin again from the newest checkpoint")
            self._planned.report_left("its shards are not whole any more")
            sys.exit(143)
        self._build()
        path = self._path_of_folder()
        if path is not None:
            self._find_everywhere(path)
            self.read(path)
            self.take(self._saved_values)

    def _find_everywhere(self, path):
        missing = torch.tensor([int(not os.path.isdir(path))])
        dist.all_reduce(missing, op=dist.ReduceOp.MAX, group=self._planned.control_group())
        if missing:  # no RuntimeError: it would be the same in the next group
            raise ValueError(f"not all workers see {path}, where the shards of '{self.name}' are: "
                             "give the job a folder on a disk that all nodes mount, or keep it on one node")


def _distributed_checkpoint():
    try:
        import torch.distributed.checkpoint as distributed_checkpoint
        from torch.distributed.checkpoint import state_dict
        from torch.distributed.device_mesh import init_device_mesh
    except ImportError as error:
        raise RuntimeError(f"sharded models need PyTorch 2.4 or newer ({error})") from error
    return distributed_checkpoint, state_dict, init_device_mesh
