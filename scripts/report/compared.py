"""What `habench compare --format json` printed. Nothing is judged here: words and numbers are shown as they came."""

import json

from report.files import clean, number

# of a change, the worst first; a word that is not here goes before `same`
ORDER = ("wrong", "other bits", "slower", "worse", "other result", "not judged", "gone", "waived", "suspicious", "disturbed", "faster", "better", "perhaps faster",
         "perhaps better", "added", "unclear", "same")
EXITS = (10, 30, 20, 40, 0)  # of several verdicts the first of these counts
CHANGES_MAX = 200_000


class Compared:
    def __init__(self, why=""):
        self.why = why  # there are no rows because of that
        self.records, self.environment, self.changes, self.verdicts, self.sides, self.means = [], [], [], [], [], []

    def __bool__(self):
        return bool(self.verdicts or self.changes)

    @property
    def verdict(self):
        """That of all new records, from which the exit code is; None: there is none."""
        def order(row):
            return EXITS.index(row.get("exit")) if row.get("exit") in EXITS else len(EXITS)
        return min(self.verdicts, key=order, default=None)

    def of(self, row):
        """The new record that a change or verdict is of; "" where there is one alone."""
        new = {r.get("index"): str(r.get("path") or r.get("name")) for r in self.records if r.get("side") == "new"}
        return new.get(row.get("new"), "") if len(new) > 1 else ""

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
            elif kind in ("verdict", "side", "faster"):
                {"verdict": out.verdicts, "side": out.sides, "faster": out.means}[kind].append(row)
    if damaged:
        notes.add(where, "a line that is no JSON is left out", damaged)
    if not out and not out.why:
        out.why = "compare printed no verdict"
    return out
