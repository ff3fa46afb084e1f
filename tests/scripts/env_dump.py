#!/usr/bin/python3
"""Writes what a worker sees of itself to $DUMP/<rank>.json."""
import json
import os
import sys

dump = {
    "env": dict(os.environ),
    "argv": sys.argv,
    "name": __name__,
    "file": os.path.realpath(__file__),
    "path0": os.path.realpath(sys.path[0]),
    "main_is_this": sys.modules["__main__"].__dict__ is globals(),
    "unbuffered": sys.stdout.write_through,
    "executable": os.path.realpath(sys.executable),
}
draft = f"{os.environ['DUMP']}/.{os.environ['RANK']}"
with open(draft, "w") as out:
    json.dump(dump, out)
os.rename(draft, f"{os.environ['DUMP']}/{os.environ['RANK']}.json")
