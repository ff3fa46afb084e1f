#!/usr/bin/env python3
"""Every link between our documents leads somewhere: the file is there, and so is the heading.

usage: tools/links_test.py
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^()\s]+)\)")


def prose(text):
    """Without code, which has brackets of its own."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchor(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)
    return {anchor(heading) for heading in re.findall(r"^#+ +(.+)$", text, re.M)}


def broken(document):
    for target in LINK.findall(prose(document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, section = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.exists():
            yield f"{target}: there is no such file"
        elif section and path.suffix == ".md" and section not in anchors(path):
            yield f"{target}: no heading makes this anchor"


def main():
    documents = [path for path in sorted(ROOT.rglob("*.md"))
                 if not {"build", "node_modules"} & set(path.relative_to(ROOT).parts)]
    faults = [f"{path.relative_to(ROOT)}: {fault}" for path in documents for fault in broken(path)]
    print("\n".join(faults) or f"{len(documents)} documents, every link leads somewhere")
    sys.exit(bool(faults or not documents))


if __name__ == "__main__":
    main()
