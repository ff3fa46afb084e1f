#!/usr/bin/env python3
"""Runs ctest and ends with one line, `N passed, N failed`.

    tools/test.py BUILD_FOLDER [ctest's options]
"""
import os
import subprocess
import sys
import xml.etree.ElementTree as xml


def count(report):
    """(passed, failed, skipped as [(name, reason)]) of ctest's JUnit report."""
    passed, failed, skipped = 0, 0, []
    for case in xml.parse(report).getroot().iter("testcase"):
        note = case.find("skipped")
        reason = note.get("message", "") if note is not None else ""
        if case.get("status") == "run":
            passed += 1
        elif case.get("status") == "disabled" or reason.startswith("SKIP_"):
            skipped.append(case.get("name"))
        else:  # "fail"; or "notrun": its program is missing
            failed += 1
    return passed, failed, skipped


def main():
    folder, options = os.path.abspath(sys.argv[1]), sys.argv[2:]
    report = os.path.join(folder, "tests.xml")
    if os.path.exists(report):
        os.remove(report)
    command = ["ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error", "--output-junit", report]
    status = subprocess.run(command + options).returncode
    if not os.path.exists(report):
        print("0 passed, 1 failed" if status else "no report from ctest")
        return status or 1
    passed, failed, skipped = count(report)
    if skipped:
        print(f"{len(skipped)} skipped: {', '.join(skipped)}")
    print(f"{passed} passed, {failed} failed", flush=True)
    return status or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
