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


def cut(sockets, forming=False):
    """Shuts down those that are still what they were.

    While a group is `forming` only for reading: our end sees it at once, the other one when it is closed. Of a socket that
    both ends have shut down whole, the kernel forgets the peer; gloo asks for it when it has just been connected, in a
    thread of its own, and takes the process down.
    """
    for descriptor, inode in sockets:
        try:
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                if os.fstat(copy.fileno()).st_ino == inode:
                    copy.shutdown(socket.SHUT_RD if forming else socket.SHUT_RDWR)
        except OSError:
            continue  # closed, or not connected any more
