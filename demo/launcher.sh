#!/bin/sh
# make demo-run: an elastic `rubato run` that grows, then loses the agent that hosts the rendezvous.
exec /usr/bin/python3 "$(dirname "$0")/launcher_story.py" "$@"
