#!/usr/bin/env python3
"""simulate.py RECORD FLEET [--machines N] [--processes N] [--seed S] [--fault WHAT[=SIZE][:COUNT]]...: a fleet that never was, of one real record.

Each machine's folder is that of RECORD (as `habench run -o` left it) with other values: the median of each figure there, times what this
machine's memory, clock, link and launches are off by (0.4% each, of one machine for all its cases), times the figure's own spread (0.7%, with
tails: one in thirty is late by a tenth). A time follows the parts that its case uses. Every folder says that it is simulated.

Faults, of COUNT machines each (1 by default): memory=0.03 (slower by so much), memory1 (one thread's), clock=0.1, link=0.5 (host to device), back=0.5
(device to host), launch=1, bit (one bit of an output of one case), wrong (a verdict), gone (expected, and never answered), hung (began, and did not end),
died (ended by a signal, no record), kind (another CPU), half=0.2 (slower by so much in all parts: another kind that facts do not tell).
"""

import argparse
import csv
import hashlib
import json
import math
import os
import random
import re
import statistics

PARTS = ("read", "read_1", "flops", "h2d", "d2h", "device", "launch")
BESIDE = {"beside_read_GBps": "read", "beside_read_1_GBps": "read_1", "beside_flops_GFLOPps": "flops", "beside_h2d_GBps": "h2d",
          "beside_d2h_GBps": "d2h", "beside_device_GBps": "device", "beside_launch_ns": "launch"}
# What the time of a case consists of, by the beginning of its id; the rest is spread over the CPU's clock.
USES = {"cpu_kernels": {"read_1": 0.9}, "cpu:": {"read": 0.7, "launch": 0.05}, "resident": {"device": 0.5, "read": 0.3, "launch": 0.1},
        "link": {"h2d": 1.0}, "lru_blocks": {"read": 0.3, "h2d": 0.4, "launch": 0.1}, "": {"read": 0.4, "h2d": 0.2, "launch": 0.1}}
FAULTS = {"memory": ("read", "read_1"), "memory1": ("read_1",), "clock": ("flops",), "link": ("h2d",), "back": ("d2h",), "launch": ("launch",),
          "half": PARTS}
OTHERS = ("bit", "wrong", "gone", "hung", "died", "kind")
DEFAULT_SIZE = {"memory": 0.05, "memory1": 0.05, "clock": 0.1, "link": 0.5, "back": 0.5, "launch": 1.0, "half": 0.2}
COLUMNS = ("schema_version", "run_id", "case_id", "process", "suite", "figure", "value", "lo", "hi", "samples", "unit", "better", "verdict")


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def uses_of(case):
    return next(uses for start, uses in USES.items() if case.startswith(start))


def quoted(values):
    return ",".join('"%s"' % str(v).replace('"', '""') for v in values) + "\n"


class Figure:
    """Rows of figures.csv of one case and figure: what stands before and behind the value."""

    def __init__(self, rows):
        row = rows[0]
        self.value = statistics.median(float(r["value"]) for r in rows)
        self.before = quoted([2, row["run_id"], row["case_id"]])[:-1], "," + quoted([row["suite"], row["figure"]])[:-1] + ',"'
        self.behind = '",,,"1",' + quoted([row["unit"], row["better"], "pass"])
        self.part = BESIDE.get(row["figure"])
        self.uses = uses_of(row["case_id"])
        timed = re.fullmatch(r"ns|us|ms", row["unit"])
        rate = re.search(r"/s$", row["unit"])
        self.sign = 1 if timed else -1 if rate and "peak" not in row["figure"] else 0
        if re.search(r"^(h2d|d2h)_", row["figure"]) and rate:
            self.uses = {row["figure"][:3]: 1.0}
        self.share = not row["unit"] and row["better"] != "neither" and 0 < self.value < 1

    def row(self, off, draw, process):
        return f'{self.before[0]},"{process}"{self.before[1]}{self.of(off, draw):.9g}{self.behind}'

    def of(self, off, draw):
        own = 0.007 * draw.gauss(0, 1) + (draw.expovariate(10) if draw.random() < 1 / 30 else 0)
        if self.part:
            quiet = 0.005 * draw.gauss(0, 1)
            return self.value * math.exp(off[self.part] + quiet if self.part == "launch" else -off[self.part] + quiet)
        if self.sign:
            time = sum(w * math.exp(off[p]) for p, w in self.uses.items()) + (1 - sum(self.uses.values())) * math.exp(off["flops"])
            return self.value * math.exp(self.sign * (math.log(time) + own))
        return min(1, max(0, self.value + 0.005 * draw.gauss(0, 1))) if self.share else self.value


def parse_faults(words):
    faults = []
    for word in words:
        m = re.fullmatch(r"([a-z0-9]+?)(?:=([0-9.]+))?(?::([0-9]+))?", word)
        if not m or (m[1] not in FAULTS and m[1] not in OTHERS):
            raise SystemExit(f"simulate.py: --fault {word}: there are {', '.join((*FAULTS, *OTHERS))}")
        if m[2] and not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", m[2]):
            raise SystemExit(f"simulate.py: --fault {word}: {m[2]} is no number")
        size = float(m[2]) if m[2] else DEFAULT_SIZE.get(m[1], 0)
        if size >= 1 and m[1] in FAULTS and m[1] != "launch":
            raise SystemExit(f"simulate.py: --fault {word}: it would be slower by all that it has; a size is below 1")
        faults += [(m[1], size)] * int(m[3] or 1)
    return faults


class Fleet:
    def __init__(self, record, out, machines, processes, seed):
        self.out, self.machines, self.processes, self.draw = out, machines, processes, random.Random(seed)
        by_figure = {}
        if not os.path.isfile(os.path.join(record, "figures.csv")):
            raise SystemExit(f"simulate.py: {record}: no record, which has a figures.csv: name what `habench run -o` left")
        for row in read(os.path.join(record, "figures.csv")):
            by_figure.setdefault((row["case_id"], row["figure"]), []).append(row)
        self.figures = [Figure(rows) for rows in by_figure.values()]
        with open(os.path.join(record, "env.json"), encoding="utf-8") as f:
            self.env = json.load(f)
        self.date = self.env["runs"][0]["date_utc"]
        self.files = {}
        for name in ("cases.csv", "cpu_kernels.csv", "link.csv"):
            if os.path.exists(os.path.join(record, name)):
                self.files[name] = [r for r in read(os.path.join(record, name)) if r["process"] == "0"]

    def write(self, folder, name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def rank(self, name, index, **more):
        rank = {"schema_version": 1, "machine": name, "host": name, "device": None, "launcher": "none", "job": "simulated", "rank": index,
                "ranks": self.machines, "begun_utc": self.date, "ended_utc": self.date, "exit": 0, "signal": None, "attempts": 1, "seconds": 1.0,
                "where": "", "simulated": True}
        self.write(self.out, f"{name}.rank.json", json.dumps({**rank, **more}) + "\n")

    def suites(self, folder, fault):
        hit = self.draw.randrange(max(1, len(self.files.get("cases.csv", []))))
        for name, rows in self.files.items():
            columns = list(rows[0]) + ([] if "outputs" in rows[0] else ["outputs"])
            text = quoted(columns)
            for i, row in enumerate(rows):
                digest = hashlib.sha256(row["case_id"].encode()).hexdigest()[:16]
                wrong = fault == "wrong" and name == "cases.csv" and i == hit
                if fault == "bit" and name == "cases.csv" and i == hit:
                    digest = f"{int(digest, 16) ^ 1 << 17:016x}"
                cells = {**row, "disturbed": "", "outputs": digest, **({"verdict": "fail", "reason": "simulated"} if wrong else {})}
                for p in range(self.processes):
                    text += quoted({**cells, "process": p}[c] for c in columns)
            self.write(folder, name, text)

    def machine(self, index, fault, size):
        name = f"node{index:05}"
        off = {p: 0.004 * self.draw.gauss(0, 1) for p in PARTS}
        if fault == "gone":
            return name
        if fault in ("hung", "died"):
            self.rank(name, index, **({"ended_utc": None, "exit": None, "seconds": None} if fault == "hung" else {"exit": None, "signal": 9}))
            return name
        for part in FAULTS.get(fault, ()):
            off[part] += math.log1p(size) if part == "launch" and fault != "half" else -math.log1p(-size)
        folder = os.path.join(self.out, name)
        os.makedirs(folder)
        env = {**self.env, "simulated": True, **({"cpu": "another CPU"} if fault == "kind" else {})}
        self.write(folder, "env.json", json.dumps(env))
        self.suites(folder, fault)
        self.write(folder, "figures.csv",
                   quoted(COLUMNS) + "".join(f.row(off, self.draw, p) for p in range(self.processes) for f in self.figures))
        self.rank(name, index)
        return name

    def make(self, faults):
        if len(faults) > self.machines:
            raise SystemExit("simulate.py: more faults than machines")
        os.makedirs(self.out)
        where = dict(zip(self.draw.sample(range(self.machines), len(faults)), faults))
        names, planted = [], ""
        for i in range(self.machines):
            fault, size = where.get(i, ("", 0))
            names.append(self.machine(i, fault, size))
            planted += f"{names[-1]} {fault}{f'={size:g}' if size else ''}\n" if fault else ""
        self.write(self.out, "expected", "".join(n + "\n" for n in names))
        self.write(self.out, "planted", planted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record")
    parser.add_argument("fleet", help="a folder that is not there yet")
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="append", default=[], metavar="WHAT[=SIZE][:COUNT]")
    o = parser.parse_args()
    Fleet(o.record, o.fleet, o.machines, o.processes, o.seed).make(parse_faults(o.fault))


if __name__ == "__main__":
    main()
