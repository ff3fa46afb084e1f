"""Sockets that are cut under gloo."""
import os
import socket
import unittest

import testing  # noqa: F401  puts the library on the path
from rubato import _sockets


class Cut(unittest.TestCase):
    def pair(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
        for end in (one, other):
            self.addCleanup(end.close)
        return one, other

    @staticmethod
    def named(end):
        return {(end.fileno(), os.fstat(end.fileno()).st_ino)}

    def test_what_has_another_name_is_spared(self):
        one, other = self.pair()
        _sockets.cut({(one.fileno(), os.fstat(other.fileno()).st_ino)})
        one.sendall(b"there")
        self.assertEqual(other.recv(5), b"there")

    def test_both_ends_see_it(self):
        one, other = self.pair()
        self.assertLessEqual(self.named(one) | self.named(other), _sockets.tcp_sockets())
        _sockets.cut(self.named(one))
        self.assertEqual((one.recv(1), other.recv(1)), (b"", b""))

    def test_while_a_group_is_formed_the_peer_is_still_known(self):
        """gloo asks for it when it is connected, and ends the process where nobody knows."""
        for forming in (True, False):
            one, other = self.pair()
            for end in (one, other):
                _sockets.cut(self.named(end), forming=forming)
            self.assertEqual(one.recv(1), b"")  # it is seen at once
            if forming:
                self.assertEqual(one.getpeername(), other.getsockname())
            else:
                with self.assertRaises(OSError):
                    one.getpeername()


if __name__ == "__main__":
    unittest.main()
