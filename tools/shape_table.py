"""What the programs that write tables of a cloud's parameters share: aws_shapes.py, gcp_shapes.py."""
import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 118  # of a row that stays on one line


def lines_of(rows):
    """`rows`: (structure, name, name on the wire, kind, is it a list, structure of its own)."""
    lines = []
    for owner, name, wire, kind, is_list, of in rows:
        row = f'      {{"{owner}", "{name}", "{wire}", {kind}, {"true" if is_list else "false"}, "{of}"}},'
        cut = row.rfind(" ", 0, 110) if len(row) > WIDTH else len(row)
        lines += [row[:cut]] + ([f"       {row[cut + 1:]}"] if row[cut + 1:] else [])
    return lines


def main(doc, target, text, model):
    """Writes the file, or tells with --check what it has that the cloud's own model does not know. The exit code."""
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        target.write_text(text())
        return 0
    written, made = (set(re.findall(r"\{\"[^{}]*\}", " ".join(each.split()))) for each in (target.read_text(), text()))
    for line in sorted(written - made):
        print(f"{target.relative_to(ROOT)}: not in {model}: {line}")
    return 1 if written - made else 0
