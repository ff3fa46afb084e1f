"""A person at a terminal: a program under a pseudo terminal, what it shows, and what is typed.

    with Terminal([RUBATO, "attach", "lab"], env, cwd) as screen:
        screen.type("echo $((40+2))\r")
        screen.expect("42")
        screen.resize(40, 120)
        screen.interrupt()                Ctrl-C, as the key sends it
        self.assertEqual(screen.end(), 0)     its exit code

What a shell echoes of the typed line is on the screen, too: expect something that the line itself does not contain.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

PATIENCE_S = int(os.environ.get("RUBATO_TEST_WAIT", "150"))
# Colours, cursor movement, titles: what a terminal obeys and a person does not see.
CONTROL = re.compile(rb"\x1b\[[0-9;?<=>!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|"
                     rb"\x1bP[^\x1b]*\x1b\\|\x1b[ -/]*[0-~]|\x0f|\x0e")


class Terminal:
    def __init__(self, argv, env, cwd, rows=24, columns=80):
        self.argv, self._raw, self._seen, self._code = argv, b"", 0, None
        # The size is there before the program is, which may look at once.
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(master)
                self._take(slave)
                os.chdir(cwd)
                os.execvpe(argv[0], argv, {"TERM": "xterm"} | env)
            finally:
                os._exit(126)
        os.close(slave)
        self._fd = master

    @staticmethod
    def _take(slave):
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        if slave > 2:
            os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hang_up()

    @property
    def shown(self):
        """All that was shown so far, without what only moves or colours it."""
        return CONTROL.sub(b"", self._raw).decode(errors="replace")

    def _read(self, patience):
        """False at the end of the output."""
        if not select.select([self._fd], [], [], patience)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # how Linux tells that nobody has the other side open
            data = b""
        self._raw += data
        return bool(data)

    def expect(self, pattern):
        """Waits until this is shown after what was expected before; the match."""
        end = time.monotonic() + PATIENCE_S
        more = True
        while True:
            found = re.compile(pattern).search(self.shown, self._seen)
            if found:
                self._seen = found.end()
                return found
            if not more or time.monotonic() > end:
                raise AssertionError(f"{'no' if more else 'it ended without'} {pattern!r} of {self.argv}:\n"
                                     f"{self.shown[self._seen:][-3000:]}\n--- before that\n"
                                     f"{self.shown[:self._seen][-1500:]}")
            more = self._read(0.2)

    def type(self, text):
        os.write(self._fd, text.encode())

    def interrupt(self):
        self.type("\x03")

    def resize(self, rows, columns):
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self):
        """Waits for its end; the exit code, negative for a signal."""
        until = time.monotonic() + PATIENCE_S
        while self._read(0.2):
            if time.monotonic() > until:
                raise AssertionError(f"{self.argv} does not end:\n{self.shown[-3000:]}")
        return self._reap()

    def hang_up(self):
        """As when the window is closed."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._code is None:
            try:
                os.kill(self.pid, signal.SIGHUP)
            except ProcessLookupError:
                pass
            self._reap()

    def _reap(self):
        if self._code is None:
            until = time.monotonic() + PATIENCE_S
            while True:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() > until:
                    os.kill(self.pid, signal.SIGKILL)
                    _, status = os.waitpid(self.pid, 0)
                    break
                time.sleep(0.01)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code
