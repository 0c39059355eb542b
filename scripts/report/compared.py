"""What `habench compare --format json` printed. Nothing is judged here: words and numbers are shown as they came."""

import json

from report.files import clean, number

# of a change, the worst first; a word that is not here goes before `same`
ORDER = ("wrong", "slower", "worse", "error grown", "not judged", "gone", "waived", "suspicious", "disturbed", "faster", "better", "two speeds", "added", "unclear", "same")
CHANGES_MAX = 200_000


class Compared:
    def __init__(self, why=""):
        self.why = why  # there are no rows because of that
        self.records, self.environment, self.changes, self.verdict = [], [], [], None

    def __bool__(self):
        return self.verdict is not None or bool(self.changes)

    def moved(self):
        """What compare has on top of its table, the worst first, and among these the largest change."""
        def size(change):
            ratio = number(change.get("ratio"))
            return -abs(ratio - 1) if ratio else 0
        return sorted((c for c in self.changes if c.get("loud", c["change"] != "same")), key=lambda c: (rank(c["change"]), size(c)))


def rank(word):
    return ORDER.index(word) if word in ORDER else len(ORDER) - 1.5


def read_rows(path, notes, why=""):
    out = Compared(why)
    if not path:
        return out
    where, damaged = "compare", 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_constant=lambda name: None)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                damaged += 1
                continue
            row = {clean(k, 40): clean(v, 400) if isinstance(v, str) else v for k, v in row.items()
                   if isinstance(v, (str, int, float, bool))}
            kind = row.get("row")
            if kind == "record":
                out.records.append(row)
            elif kind == "environment":
                out.environment.append(row)
            elif kind == "change" and len(out.changes) < CHANGES_MAX:
                row["change"] = str(row.get("change", "?"))
                out.changes.append(row)
            elif kind == "verdict":
                out.verdict = row
    if damaged:
        notes.add(where, "a line that is no JSON is left out", damaged)
    if not out and not out.why:
        out.why = "compare printed no verdict"
    return out
