"""A loop of another library: it asks whether to stop after each step."""
import sys
import time

import torch.distributed as dist

import rubato

dist.init_process_group("gloo")
step = 0
while not rubato.stop_requested():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.01)
sys.exit(143)
