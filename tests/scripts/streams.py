"""Writes one line to each stream, and half a line at the end."""
import os
import sys

print(f"out of {os.environ['RANK']}")
print(f"err of {os.environ['RANK']}", file=sys.stderr)
sys.stdout.write(f"half of {os.environ['RANK']}")
