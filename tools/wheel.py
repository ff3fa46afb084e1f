#!/usr/bin/env python3
"""Writes a wheel with the static binary as its script `rubato` and the training library as its package `rubato`.

    tools/wheel.py BINARY FOLDER        prints the wheel's path

`pip install` of that one file gives both. The same inputs give the same bytes. The alias `adaptdl` is not in it: the
binary brings it to workers where no original is installed.
"""
import argparse
import base64
import hashlib
import os
import platform
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip file can say
ELF_DYNAMIC_LOADER = b"/ld-linux"


def version():
    return re.search(r"project\(rubato VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def tags():
    """A static binary needs no C library: it runs wherever its machine's code does, as old as pip's names go."""
    machine = platform.machine()
    return [f"py3-none-{system}_{machine}" for system in ("manylinux_2_17", "musllinux_1_1")]


def metadata(number):
    return "\n".join([
        "Metadata-Version: 2.1", "Name: rubato", f"Version: {number}",
        "Summary: Elastic training on machines that come and go: launcher, clusters, jobs, training library",
        "Requires-Python: >=3.8", "Description-Content-Type: text/markdown", "",
        (ROOT / "README.md").read_text()])


def contents(binary):
    """(name in the wheel, bytes, mode) of all but RECORD."""
    number = version()
    package = ROOT / "python"
    for path in sorted((package / "rubato").rglob("*.py")):
        yield path.relative_to(package).as_posix(), path.read_bytes(), 0o644
    yield f"rubato-{number}.data/scripts/rubato", binary.read_bytes(), 0o755
    yield f"rubato-{number}.dist-info/METADATA", metadata(number).encode(), 0o644
    lines = ["Wheel-Version: 1.0", "Generator: tools/wheel.py", "Root-Is-Purelib: false",
             *(f"Tag: {tag}" for tag in tags()), ""]
    yield f"rubato-{number}.dist-info/WHEEL", "\n".join(lines).encode(), 0o644


def write(path, binary):
    record_name = f"rubato-{version()}.dist-info/RECORD"
    record = []
    with zipfile.ZipFile(path, "w") as wheel:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)

        for name, data, mode in contents(binary):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            add(name, data, mode)
        add(record_name, "\n".join([*record, f"{record_name},,", ""]).encode(), 0o644)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(argv)
    if not args.binary.is_file():
        sys.exit(f"error: there is no binary {args.binary}\n  fix make build")
    if ELF_DYNAMIC_LOADER in args.binary.read_bytes()[:4096]:
        sys.exit(f"error: {args.binary} is not static: it would not run on other machines\n  fix give build/rubato")
    args.folder.mkdir(parents=True, exist_ok=True)
    systems = ".".join(tag.removeprefix("py3-none-") for tag in tags())
    path = args.folder / f"rubato-{version()}-py3-none-{systems}.whl"
    draft = path.with_suffix(".draft")
    write(draft, args.binary)
    os.replace(draft, path)
    print(path)


if __name__ == "__main__":
    main()
