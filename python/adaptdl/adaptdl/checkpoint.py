"""AdaptDL's checkpoint module."""
import os

from rubato import env as _env
from rubato.checkpoint import State, load_state, save_all_states

__all__ = ["CKPT_DIR_PREFIX", "State", "load_state", "save_all_states", "save_state"]

CKPT_DIR_PREFIX = "checkpoint-"


def save_state(state, checkpoint_dir, sync=True):
    """One state into CHECKPOINT_DIR/_checkpoint, by rank 0; `sync` on all ranks first."""
    if sync:
        state.sync()
    if _env.rank() != 0 or checkpoint_dir is None:
        return
    folder = os.path.join(checkpoint_dir, "_checkpoint")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, state.name), "wb") as file:
        state.save(file)
