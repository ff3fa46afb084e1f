"""Objects of a bucket are files in a folder, so that large ones need no memory."""
import itertools
import os

PIECE = 1 << 20


class Answer:
    """What the server writes: a status, headers, and text, or a range of a file."""

    def __init__(self, status=200, headers=None, text="", file=None, start=0, length=0):
        self.status, self.headers, self.text = status, headers or {}, text
        self.file, self.start, self.length = file, start, length


class BadRange(Exception):
    pass


def range_of(text, size):
    """(start, length) of a Range header."""
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:  # the last so many bytes
        start = max(0, size - int(last))
        return start, size - start
    if int(first) >= size:
        raise BadRange()
    return int(first), min(int(last) if last else size - 1, size - 1) - int(first) + 1


def list_names(names, prefix, delimiter, after, most):
    """(names, common prefixes, the last one that was read or None at the end), in order, behind `after`."""
    found, common, last = [], [], after
    for name in sorted(names):
        if not name.startswith(prefix) or name <= after:
            continue
        rest = name[len(prefix):]
        folder = prefix + rest.partition(delimiter)[0] + delimiter if delimiter and delimiter in rest else None
        if folder and folder in common:
            last = name
            continue
        if len(found) + len(common) >= most:
            return found, common, last
        common.append(folder) if folder else found.append(name)
        last = name
    return found, common, None


class Files:
    def __init__(self, folder):
        self.folder, self.numbers = folder, itertools.count(1)

    def new(self):
        return os.path.join(self.folder, f"{next(self.numbers):08d}")

    def keep(self, request):
        """The path of what came with the request; it is ours now."""
        path = self.new()
        if request.body_file:
            os.rename(request.body_file, path)
        else:
            with open(path, "wb") as file:
                file.write(request.body)
        return path

    def append(self, path, source):
        with open(path, "ab") as whole, open(source, "rb") as file:
            while piece := file.read(PIECE):
                whole.write(piece)
