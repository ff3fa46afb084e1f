"""Schedulers in checkpoints: their numbers, as plain values. Code, and what code refers to, is the script's own.

`state_dict()` of a scheduler may hold functions (OneCycleLR and CyclicLR before PyTorch 2.1), or another scheduler as an
object (warm-ups of other packages). Functions are left out, schedulers inside are saved by their own `state_dict()`; what
was made by the script keeps its own of both.
"""
import warnings

from rubato import plain

_INSIDE = "rubato: inside"  # in a state: {attribute: state} of the objects that a scheduler holds


def state_of(scheduler):
    """Plain values for `load`."""
    state, inside = {}, {}
    for key, value in scheduler.state_dict().items():
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            inside[key] = state_of(value)
        elif not callable(value):
            _keep(scheduler, state, key, _without_code(value))
    return {**state, _INSIDE: inside} if inside else state


def load(scheduler, state):
    rest = {key: value for key, value in state.items() if key != _INSIDE}
    for key, of_other in state.get(_INSIDE, {}).items():
        if getattr(scheduler, key, None) is not None:
            load(getattr(scheduler, key), of_other)
    scheduler.load_state_dict(rest)


def _keep(scheduler, state, key, value):
    try:
        plain.encode(value, [], key)
    except TypeError as error:
        warnings.warn(f"of {type(scheduler).__name__} this is not saved, and begins anew after a restart: {error}")
        return
    state[key] = value


def _without_code(value):
    if type(value) is dict:
        return {key: _without_code(one) for key, one in value.items() if not callable(one)}
    if type(value) is list:
        return [None if callable(one) else _without_code(one) for one in value]
    return value
