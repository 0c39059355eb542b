"""cases.csv: the steps of attention variants, gathered over processes."""

import os
import re

from report.files import clean, median, number, positive
from report.text import size

# what has to be equal where two steps are set side by side, but for the context
SHAPE = ("dataset", "batch", "q_len", "q_heads", "kv_heads", "head_dim", "kv_dtype", "layers", "load", "model", "threads", "seed",
         "device", "device_kind", "team")
SHOWN = {"batch": "batch {}", "q_len": "{} new tokens", "layers": "{} layers", "threads": "{} CPU threads", "seed": "seed {}",
         "device": "device {}", "team": "team {}", "load": "load {}"}
BEFORE = {"team": "openmp", "load": "attention"}  # what older files, which lack the column, mean
PLAIN = {("q_len", "1"), ("batch", "1"), ("load", "attention")}  # goes without saying
ALWAYS = ("dataset", "heads", "kv_dtype")


class Step:
    """A case of one folder: what its processes measured."""

    def __init__(self, row, rows, side):
        self.row, self.side = row, side
        self.variant = clean(row.get("variant", "?"), 40)
        params = clean(row.get("params", ""), 60)
        self.label = f"{self.variant} {params}".strip() + (" graph=1" if row.get("graph") == "1" else "")
        self.family = clean(row.get("family", "?"), 40)
        lengths = [number(x) for x in row.get("ctx_len", "").split("+")]
        self.context = sum(x for x in lengths if x and x > 0) or None
        self.shape = tuple(clean(row.get(key) or BEFORE.get(key, ""), 60) for key in SHAPE) + (clean(row["ctx_len"], 60) if len(lengths) > 1 else "",)
        self.processes = len(rows)
        self.ns, self.lo, self.hi = self.times(rows)
        full = median([f for f in (positive(r.get("full_step_ns")) for r in rows) if f])
        self.full = full

    @staticmethod
    def times(rows):
        """Of one process its interval; of several the median, and the least and the most of them."""
        found = [x for x in (positive(r.get("step_ns")) for r in rows) if x]
        if len(found) > 1:
            return median(found), min(found), max(found)
        row = next((r for r in rows if positive(r.get("step_ns"))), {})
        return positive(row.get("step_ns")), positive(row.get("step_lo_ns")), positive(row.get("step_hi_ns"))

    def figure(self, key):
        return number(self.row.get(key))


def steps_of(run, side):
    by_case = {}
    for row in run.table("cases.csv"):
        if row.get("verdict") in ("pass", "suspect", "unchecked"):
            by_case.setdefault(row["case_id"], []).append(row)
    return [Step(rows[0], rows, side) for rows in by_case.values()]


def shape_labels(shapes):
    """A name for each shape, with what differs between them; what is the same in all is said where it says much."""
    def named(shape, keys):
        of = dict(zip(SHAPE, shape))
        words = []
        for key in SHAPE:
            if key == "q_heads" and ("heads" in keys):
                words.append(f"heads {of['q_heads']}/{of['kv_heads']} x {of['head_dim']}")
            elif key in keys and key not in ("q_heads", "kv_heads", "head_dim") and of[key] and (key, of[key]) not in PLAIN:
                words.append(SHOWN.get(key, "{}").format(of[key]))
        if shape[-1]:
            words.append(f"lengths {shape[-1]}")
        return ", ".join(words)
    differs = {key for i, key in enumerate(SHAPE) if len({s[i] for s in shapes}) > 1}
    if differs & {"q_heads", "kv_heads", "head_dim"}:
        differs.add("heads")
    return {s: named(s, differs | set(ALWAYS)) for s in shapes}


def short_names(ids):
    """A name for each id: what is the same in all is left out of it, as long as they stay apart."""
    words = {i: re.split("[:,]", i) for i in ids}
    common = set.intersection(*map(set, words.values())) if len(words) > 1 else set()
    short = {i: clean(",".join(w for n, w in enumerate(ws) if not n or w not in common).replace(",", ":", 1), 80) for i, ws in words.items()}
    return short if len(set(short.values())) == len(short) else {i: clean(i, 120) for i in ids}


def short_machines(names):
    """A label for each machine: the words that all names begin or end with are left out."""
    head = re.sub(r"[^-._/]*$", "", os.path.commonprefix(names))
    tail = re.sub(r"^[^-._/]*", "", os.path.commonprefix([n[::-1] for n in names])[::-1])
    if len(set(names)) < 2 or len(head) + len(tail) >= min(map(len, names)):
        head = tail = ""
    return {n: clean("…" * (head != "") + n[len(head):len(n) - len(tail)] + "…" * (tail != ""), 120) for n in names}


def sides_of(steps):
    return len({s.side for s in steps})


def by_shape(steps):
    """Groups of steps that may be set side by side, the largest first."""
    groups = {}
    for step in steps:
        groups.setdefault(step.shape, []).append(step)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def contexts(steps):
    return sorted({s.context for s in steps if s.context})


def context_text(x):
    return size(x) if x else "?"
