"""Logs that are large, fast or odd: nothing is lost, and no question about them holds the head's loop.

The watchdog of the daemons' loops (docs/testing.md) is set to 50 ms of CPU time in every test here; tearDown fails if
it has anything to say.
"""
import hashlib
import json

import cluster_harness
import harness
from cluster_harness import cluster_text

MB = 1 << 20

PRINTS = """
import os, sys
rank, bytes_left, number = int(os.environ["RANK"]), int(sys.argv[1]), 0
out = sys.stdout.buffer
while bytes_left > 0:
    line = b"%d %d " % (rank, number) + b"%x" % (number * 2654435761 % 2**64) * (1 + number % 40) + b"\\n"
    out.write(line)
    bytes_left -= len(line)
    number += 1
out.write(b"%d lines of %d" % (number, rank))
"""


def printed_line(rank, number):
    return f"{rank} {number} " + f"{number * 2654435761 % 2**64:x}" * (1 + number % 40)


class Case(cluster_harness.ClusterCase):
    turn_limit_ms = 50


class Noise(Case):
    def test_two_workers_print_100_mb_as_fast_as_they_can(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.script(PRINTS)
        job = self.submit("--workers", 2, "--name", "noisy", "-d", "work", "job.py", 50 * MB)
        self.wait_for_job(job, "succeeded", timeout=4 * harness.WAIT)
        last = {}
        seen, wanted = hashlib.sha256(), hashlib.sha256()
        raw = self.place / "jobs" / job / "log"
        numbers = {0: 0, 1: 0}
        with self.output_of("logs", job, "--json") as lines:
            for line in lines:
                entry = json.loads(line)
                rank, text = entry["rank"], entry["text"]
                if text.endswith(f"lines of {rank}"):
                    last[rank] = int(text.split()[0])
                    continue
                seen.update(text.encode())
                wanted.update(printed_line(rank, numbers[rank]).encode())
                numbers[rank] += 1
        self.assertEqual(seen.hexdigest(), wanted.hexdigest())
        self.assertEqual(numbers, last)
        self.assertGreater(raw.stat().st_size, 100 * MB)
        self.assertNotIn("missing_lines", self.job(job))

    def test_odd_lines(self):
        self.up(cluster_text(small=(1, 1, 1)))
        self.script("import sys; out = sys.stdout.buffer\n"
                    "out.write(b'10%\\r20%\\r\\n' + b'x' * 1600000 + b'\\n' + b'\\n')\n"
                    "out.write(b'\\x00\\x1b[1m\\xff\\xfe\\n')\n"
                    "out.write('ä \\u2028 end'.encode())\n")
        job = self.submit("--workers", 1, "-d", "work", "job.py")
        self.wait_for_job(job, "succeeded")
        texts = self.log_texts(job)
        self.assertEqual(texts[0], "10%\r20%")
        long = [text for text in texts if text.startswith("x")]
        self.assertEqual("".join(long), "x" * 1600000, "a long line comes in pieces")
        with self.output_of("logs", job, "--no-prefix", "--rank", 0) as lines:
            self.assertIn("x" * 1600000 + "\n", list(lines), "and is put together again")
        self.assertEqual(texts[len(long) + 1:], ["", "\0\x1b[1m\ufffd\ufffd", "ä \u2028 end"])
        self.assertEqual(self.log_texts(job, "--tail", 1), ["ä \u2028 end"])


class Questions(Case):
    """A log of 400 MB of an older version, without an index, beside a training."""

    LINE = ('{{"agent":"a0","generation":1,"node":"small-1","rank":{rank},"sequence":{n},"stream":"out",'
            '"text":"step {n} loss 0.123456 {pad}","time":"{time}"}}\n')

    def write_log(self, job, megabytes):
        """Lines of ranks 0 to 3 through a day of 2026; of rank 7 only in one place. How many there are of it."""
        path = self.place / "jobs" / job / "log"
        block = "".join(self.LINE.format(rank=n % 4, n=n, pad="x" * 60, time="2026-01-01T@@:00:00.000Z")
                        for n in range(5000)).encode()
        count = megabytes * MB // len(block) + 1
        seven = 0
        with open(path, "wb") as log:
            for i in range(count):
                piece = block.replace(b"@@", b"%02d" % (i * 24 // count))
                if i == count // 2:
                    seven = piece.count(b'"rank":3,')
                    piece = piece.replace(b'"rank":3,', b'"rank":7,')
                log.write(piece)
            log.write(self.LINE.format(rank=0, n=1, pad="the end", time="2026-01-02T00:00:00.000Z").encode())
        return seven

    def test_a_long_log_is_asked_while_a_training_runs(self):
        self.up(cluster_text(small=(1, 2, 2)))
        self.script("print('short')")
        old = self.submit("--workers", "1:8", "-d", "work", "job.py")  # so that it may have had a rank 7
        self.wait_for_job(old, "succeeded")
        seven = self.write_log(old, 400)
        self.submit_steps("--workers", "2", "--name", "train")
        self.wait_for_workers_of("train", 2)
        following = self.follow("logs", "-f", "train")
        self.assertEqual(len(self.log_texts(old, "--rank", 7)), seven)
        index = self.place / "jobs" / old / "log.index"
        self.assertGreater(index.stat().st_size, 10_000)
        self.assertEqual(len(self.log_texts(old, "--rank", 7, "--tail", 5)), 5)
        self.assertEqual(self.log_texts(old, "--since", "1s"), [])
        (last,) = self.log_texts(old, "--since", "2026-01-01T23:59:59Z")
        self.assertIn("the end", last)
        self.assertEqual(len(self.log_texts(old, "--tail", 1000)), 1000)
        # A damaged index is no worse than none.
        index.write_text("damaged\n" + index.read_text()[9:])
        self.assertEqual(len(self.log_texts(old, "--rank", 7, "--since", "2026-01-01T00:00:00Z")), seven)
        job = self.job("train")
        self.assertEqual((job["phase"], job["generation"]), ("running", 1), job["events"])
        (self.folder / "finish").touch()
        self.wait_for_job("train", "succeeded")
        following.wait(timeout=harness.WAIT)
        metrics = self.api("GET", "/metrics")[2]
        text = metrics.decode() if isinstance(metrics, bytes) else metrics
        self.assertRegex(text, r"rubato_loop_turn_seconds_count [1-9]")


if __name__ == "__main__":
    cluster_harness.main()
