#!/bin/sh
# make demo: an elastic training on this machine that grows, then loses the agent that hosts the rendezvous.
exec /usr/bin/python3 "$(dirname "$0")/story.py" "$@"
