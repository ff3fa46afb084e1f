"""Elastic training with PyTorch: the loop stays as it is, the number of workers and the batch size do not.

    rubato.torch.init_process_group("gloo")
    model = AdaptiveDataParallel(model, optimizer, lr_scheduler)
    loader = AdaptiveDataLoader(dataset, batch_size=64, shuffle=True)
    loader.autoscale_batch_size(1024, local_bsz_bounds=(16, 128))
    for epoch in remaining_epochs_until(30):
        for inputs, targets in loader: ...
"""
import os

import torch
import torch.distributed as dist

from rubato import _signal, collective, env, group
from rubato.torch.accumulator import Accumulator
from rubato.torch.data import AdaptiveDataLoader, ElasticSampler, current_dataloader, forget_group
from rubato.torch.epoch import current_epoch, finished_epochs, remaining_epochs_until
from rubato.torch.helper import AdaptiveDataLoaderHelper, AdaptiveDataLoaderMixin
from rubato.torch.iterator import AdaptiveBPTTIterator
from rubato.torch import ending, forking, profile
from rubato.torch.parallel import AdaptiveDataParallel

__all__ = ["Accumulator", "AdaptiveBPTTIterator", "AdaptiveDataLoader", "AdaptiveDataLoaderHelper",
           "AdaptiveDataLoaderMixin", "AdaptiveDataParallel", "ElasticSampler", "current_dataloader", "current_epoch",
           "finished_epochs", "init_process_group", "remaining_epochs_until"]


def init_process_group(backend=None, init_method=None, world_size=None, rank=None, in_place=True):
    """torch.distributed's, with what the launcher said; installs the handlers of SIGTERM and SIGINT.

    `backend` defaults to nccl where each worker has a GPU, else gloo. Where an agent plans the group ($RUBATO_PLAN_DIR),
    a worker that is not in the plan yet is alone until its first epoch or loop, and meets the others there; with
    `in_place` False it takes no part in that, and is restarted when the group changes.
    """
    if backend is None:
        backend = "nccl" if torch.cuda.is_available() and torch.distributed.is_nccl_available() else "gloo"
    _signal.install()
    ending.leave_at_exit()
    forking.rest_before_forks()
    planned = in_place and init_method is None and world_size is None and rank is None
    if planned and group.membership.folder() is not None:
        _start_planned(backend)
        return
    world_size = env.world_size() if world_size is None else world_size
    rank = env.rank() if rank is None else rank
    if init_method is None:
        init_method = "env://"
        os.environ.setdefault("MASTER_ADDR", env.master_address())
        if "MASTER_PORT" not in os.environ or os.environ["MASTER_PORT"] == "0":
            if world_size > 1:
                os.environ["MASTER_PORT"] = str(env.master_port())
            else:  # a script run by hand: nobody else is to find it
                init_method = "tcp://127.0.0.1:0"
    if init_method == "tcp://127.0.0.1:0":
        store = dist.HashStore()
        dist.init_process_group(backend, store=store, world_size=world_size, rank=rank)
    else:
        dist.init_process_group(backend, init_method=init_method, world_size=world_size, rank=rank)
    collective.teardown()
    collective.initialize()


def _start_planned(backend):
    if backend == "nccl":  # or its watchdog ends the process where we go on
        for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"):
            os.environ.setdefault(name, "0")
    collective.teardown()
    group.start(backend)
    group.current().on_leave(collective.leave)
    group.current().on_leave(forget_group)
