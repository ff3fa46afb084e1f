"""count.py, with a time-out of gloo that no test outlives."""
import os
import runpy

from rubato import group

group.TIMEOUT_S = 3600.0
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "count.py"), run_name="__main__")
