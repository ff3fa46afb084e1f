#!/bin/sh
# make demo: a cluster on this machine whose training grows, loses a node, loses the head, and ends as it should.
exec /usr/bin/python3 "$(dirname "$0")/cluster_story.py" "$@"
