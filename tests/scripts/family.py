"""A worker with a child, and a grandchild in a session of its own. FOLDER/family.RANK names all three processes.

usage: family.py FOLDER
"""
import os
import sys
import time

folder = sys.argv[1]
pids = [os.getpid()]
read, write = os.pipe()
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild == 0:
        os.setsid()
        time.sleep(600)
    os.write(write, str(grandchild).encode())
    time.sleep(600)
pids += [child, int(os.read(read, 20))]
draft = f"{folder}/.family.{os.environ['RANK']}"
with open(draft, "w") as out:
    out.write(" ".join(map(str, pids)))
os.rename(draft, f"{folder}/family.{os.environ['RANK']}")
time.sleep(600)
