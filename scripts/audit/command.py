"""The command line, and what is printed."""

import argparse
import os
import sys

from .case import Audit
from .dump import Dump
from .errors import Damaged


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"audit.py: {message}; see audit.py --help", file=sys.stderr)
        sys.exit(64)


def files_of(paths):
    for path in paths:
        if os.path.isdir(path):
            yield from sorted(os.path.join(path, x) for x in os.listdir(path) if x.endswith(".safetensors"))
        else:
            yield path


def tell(audit):
    """What states have of their own, and what was decided besides keys."""
    if audit.own:
        print("  states of their own: " + ", ".join(f"{count} with {what}" for what, count in audit.own.items()))
    for name, values in audit.notes.items():
        if values:
            print(f"  note {name}: of {len(values)} heads, from {min(values):.6g} to {max(values):.6g}, mean "
                  f"{sum(values) / len(values):.6g}")


def judge(path, all_lines):
    """Prints the lines of a file; returns an exit code."""
    name = os.path.basename(path)
    try:
        dump = Dump(path)
        name = dump.word("case")
        audit = Audit(dump)
    except (Damaged, OSError) as error:
        print(f"DAMAGED {path}: {error.strerror if isinstance(error, OSError) else error}")
        return 20
    except Exception as error:  # one file's fault is not the others'
        print(f"DAMAGED {path}: it could not be judged: {type(error).__name__}: {error}")
        return 20
    if not audit.found:
        print(f"ok {name}: {audit.rows} rows of attention over {dump.steps} steps: error/bound {audit.ratio:.3g}; reference "
              f"off by {audit.reference:.2g} of the bound, bounds by {audit.bounds:.2g}")
        tell(audit)
        return 0
    for text in audit.found if all_lines else audit.found[:1]:
        print(f"WRONG {name}: {text}")
    print(f"WRONG {name}: {len(audit.found)} differences; {audit.wrong_rows} of {audit.rows} rows beyond their bound, "
          f"error/bound {audit.ratio:.3g}")
    tell(audit)
    return 10


def main(description):
    parser = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a dump, or a folder of them")
    parser.add_argument("-a", "--all", action="store_true", help="print every difference, not the first of each case")
    args = parser.parse_args()
    codes = [judge(path, args.all) for path in files_of(args.paths)]
    right, wrong, damaged = (codes.count(x) for x in (0, 10, 20))
    print(f"{right} ok, {wrong} wrong, {damaged} damaged")
    sys.exit(10 if wrong else 20 if damaged else 0 if right else 77)
