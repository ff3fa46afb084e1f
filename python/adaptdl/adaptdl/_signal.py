"""AdaptDL's flag of SIGTERM and SIGINT."""
from rubato._signal import install as _install
from rubato._signal import stop_requested as get_exit_flag

__all__ = ["get_exit_flag"]

_install()
