import json
import os
import socket
import tempfile
import threading
import unittest

import agent
from rubato import _store


class StoreTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.server = agent.Store(folder.name)
        self.addCleanup(self.server.close)

    def client(self, **options):
        made = _store.Client(self.server.address, options.pop("token", self.server.token), **options)
        self.addCleanup(made.close)
        return made

    def test_values_are_kept_added_to_and_deleted(self):
        client = self.client()
        client.set("1/a", b"\0\xff")
        self.assertEqual(client.get(["1/a"]), [b"\0\xff"])
        self.assertEqual([client.add("1/n", 2), client.add("1/n", -1)], [2, 1])
        self.assertEqual(client.get(["1/n"]), [b"1"])
        client.set("10/a", b"other")
        self.assertEqual(client.delete("1/"), 2)
        self.assertFalse(client.has(["1/a"]))
        self.assertTrue(client.has(["10/a"]))

    def test_a_wait_ends_with_the_last_key_and_holds_up_no_other_thread(self):
        client, results = self.client(), []
        waiting = threading.Thread(target=lambda: results.append(client.get(["a", "b"])))
        waiting.start()
        client.set("a", b"1")
        client.set("b", b"2")
        waiting.join(agent.LIMIT_S)
        self.assertEqual(results, [[b"1", b"2"]])

    def test_a_wait_is_ended_by_its_check_or_by_time(self):
        def check():
            raise RuntimeError("a newer plan")

        with self.assertRaisesRegex(RuntimeError, "a newer plan"):
            self.client(check=check).get(["never"])
        with self.assertRaisesRegex(_store.StoreError, "nobody set 'never'"):
            self.client(timeout_s=0.1).get(["never"])

    def test_a_wrong_token_or_another_protocol_gets_nothing(self):
        with self.assertRaisesRegex(_store.StoreError, "token"):
            self.client(token="wrong").set("a", b"1")
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"op": "hello"}\n', b'{"op": "set"}\n'):
            with socket.create_connection(self.client()._target, agent.LIMIT_S) as raw:
                raw.sendall(text)
                self.assertEqual(raw.recv(100), b"")

    def test_what_is_not_understood_is_answered_and_the_connection_lives(self):
        with socket.create_connection(self.client()._target, agent.LIMIT_S) as raw:
            lines = raw.makefile("rwb")
            lines.write(json.dumps({"op": "hello", "token": self.server.token}).encode() + b"\n")
            for request in ({"op": "dance"}, {"op": "set", "key": 1, "value": ""}, {"op": "set", "key": "a", "value": "%"},
                            {"op": "get"}, 7):
                lines.write(json.dumps(request).encode() + b"\n")
            lines.flush()
            self.assertEqual(json.loads(lines.readline()), {})
            for _ in range(5):
                self.assertIn("error", json.loads(lines.readline()))

    def test_a_store_that_is_gone_is_named(self):
        client = self.client()
        client.set("a", b"1")
        self.server.close()
        with self.assertRaisesRegex(_store.StoreError, self.server.address):
            client.set("a", b"2")

    def test_a_connection_that_was_cut_is_made_anew(self):
        client = self.client()
        client.set("a", b"1")
        with socket.socket(fileno=os.dup(client.descriptors().pop())) as copy:
            copy.shutdown(socket.SHUT_RDWR)
        with self.assertRaises(_store.StoreError):
            client.get(["a"])
        self.assertEqual(client.get(["a"]), [b"1"])


if __name__ == "__main__":
    unittest.main()
