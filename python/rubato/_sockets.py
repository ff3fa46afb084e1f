"""The TCP sockets of this process, and how to cut some of them.

gloo cannot abort a collective; but its sockets can be shut down under it, from any thread, and the collective fails
within milliseconds. Listening sockets must be spared: PyTorch 2 aborts the process when its own fails to accept.
"""
import os
import socket
import stat


def tcp_sockets():
    """{(descriptor, inode)} of the TCP sockets of this process that do not listen."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                tcp = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM
                if tcp and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.add((descriptor, status.st_ino))
        except OSError:
            continue  # it was closed meanwhile
    return found


def cut(sockets):
    """Shuts down those that are still what they were."""
    for descriptor, inode in sockets:
        try:
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                if os.fstat(copy.fileno()).st_ino == inode:
                    copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # closed, or not connected any more
