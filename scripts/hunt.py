#!/usr/bin/env python3
"""Hunts drawn faults (suites/defects/fault.h) and counts how many the judge sees: hunt.py FIRST LAST [KEYS].

KEYS: more keys of the case, as others=no: the operation's own rows alone. Each seed has a process of its own,
`habench check defects:drawn=SEED`, as a fault may end it. Prints each fault, then how many of each class were caught,
and the faults that no case caught.
"""

import re
import subprocess
import sys

LIMIT_S = 300


def hunt(seed, keys):
    """How it was seen, its text and how it failed; ALIVE, CRASHED, HUNG."""
    try:
        run = subprocess.run(["build/release/habench", "check", f"defects:drawn={seed}{keys}"], capture_output=True, text=True,
                             timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "HUNG", "", "", ""
    found = re.search(rf"^drawn:{seed} +(\S+) +(.*)$", run.stdout, re.M)
    if not found:
        return "CRASHED", "", "", f"exit {run.returncode}"
    lines = run.stdout[found.end():].split("\n\n")[0].strip().splitlines()
    kind = re.search(r"^class .*\n(\S+)", run.stdout, re.M)
    return found[1], found[2], kind[1] if kind else "", lines[-1].strip()[:240] if lines else ""


def main():
    first, last = int(sys.argv[1]), int(sys.argv[2])
    keys = "," + sys.argv[3] if len(sys.argv) > 3 else ""
    planted, caught, missed = {}, {}, []
    for seed in range(first, last + 1):
        seen, what, kind, said = hunt(seed, keys)
        print(f"{seed} {seen} {kind} {what}\n    {said}", flush=True)
        is_caught = seen in ("operation", "claims", "case")
        planted[kind] = planted.get(kind, 0) + 1
        caught[kind] = caught.get(kind, 0) + is_caught
        if not is_caught:
            missed.append(f"{seed} {seen} {what}")
    print("\nclass     planted caught")
    for kind in sorted(planted):
        print(f"{kind:<10}{planted[kind]:>7}{caught[kind]:>7}")
    print(f"{'all':<10}{sum(planted.values()):>7}{sum(caught.values()):>7}\n")
    print("\n".join(missed))


if __name__ == "__main__":
    main()
