"""AdaptDL's names on Rubato's training library: scripts of AdaptDL's users run as they are.

This folder is put on a worker's path only where no other `adaptdl` can be imported.
"""
