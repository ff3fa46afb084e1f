"""Saves a folder that all workers write, and reads it: folders.py [--apart] [--needs-all]. --apart: each has its own disk."""
import os
import sys

import rubato.torch as adaptive
from rubato import checkpoint, env
from rubato.folders import FolderState

if "--apart" in sys.argv:
    os.environ["ADAPTDL_CHECKPOINT_PATH"] += f"-{env.rank()}"
adaptive.init_process_group("gloo", in_place=False)


class Parts(FolderState):
    needs_all = "--needs-all" in sys.argv

    def write(self, folder):
        assert folder.endswith(".tmp"), folder  # under its own name it would never travel
        with open(os.path.join(folder, f"part-{env.rank()}"), "w", encoding="utf-8") as file:
            file.write("x")

    def read(self, folder):
        print("read", sorted(os.listdir(folder)))


checkpoint.load_state(Parts("parts"))
checkpoint.save_all_states()
names = sorted(name for name in os.listdir(env.checkpoint_path()) if name.startswith("parts"))
print("there", [[name, sorted(os.listdir(os.path.join(env.checkpoint_path(), name)))] for name in names])
