"""AdaptDL's checkpoint module."""
from rubato.checkpoint import State, load_state, save_all_states

__all__ = ["State", "load_state", "save_all_states", "save_state"]


def save_state(state, fileobj, sync=True):
    """One state into an open file; `sync` on all ranks first."""
    from rubato import env

    if sync:
        state.sync()
    if env.rank() == 0:
        state.save(fileobj)
