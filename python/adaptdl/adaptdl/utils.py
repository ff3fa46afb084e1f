"""AdaptDL's utils."""
import functools
import traceback

__all__ = ["print_exc"]


def print_exc(function):
    """A decorator: what the function throws is printed, and thrown. Hooks of autograd would swallow where it came from."""

    @functools.wraps(function)
    def printing(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException:
            traceback.print_exc()
            raise

    return printing
