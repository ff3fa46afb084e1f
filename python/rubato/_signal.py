"""SIGTERM and SIGINT raise a flag. The group agrees on it at the end of a step, saves, and leaves together."""
import signal
import threading

_asked_to_stop = False


def stop_requested():
    return _asked_to_stop


def reset():
    global _asked_to_stop
    _asked_to_stop = False


def install():
    """Installs the handlers. Does nothing outside the main thread, where Python allows none.

    A second SIGINT interrupts at once: somebody at a terminal must not have to wait for a step to end.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def on_term(_number, _frame):
        global _asked_to_stop
        _asked_to_stop = True

    def on_interrupt(number, frame):
        if _asked_to_stop:
            signal.default_int_handler(number, frame)
        on_term(number, frame)

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_interrupt)
