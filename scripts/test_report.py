#!/usr/bin/env python3
"""test_report.py PROGRAM SCOPE: `habench report`: what it reads of whole and of damaged folders, its texts, and the page as Chromium
shows it. Records here are made up from a published one, and are figures of no machine. SCOPE "small": what the program does
without Python alone. What is not installed is said, and not tested: scripts/setup.sh --report, apt install chromium."""

import csv
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from fleet.simulate import parse_faults  # noqa: E402
from look import Browser, chromium  # noqa: E402
from report import charts  # noqa: E402
from report.cases import short_machines, short_names, steps_of  # noqa: E402
from report.compared import read_rows  # noqa: E402
from report.files import Notes, clean, number, rows  # noqa: E402
from report.history import series_of  # noqa: E402
from report.kernels import kernels_figure  # noqa: E402
from report.record import Folder, runs_in  # noqa: E402
from report.steps import front  # noqa: E402
from report.text import digits, percent, quantity  # noqa: E402
from report.trace import NAMES, Span, Traced, traced_of  # noqa: E402

PUBLISHED = os.path.join(ROOT, "results", "2026-11-22-xeon-2core")
LIBRARY = os.path.join(ROOT, "build", "report")
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2>\u202e"
PAGE_MAX = 8 << 20
count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:400]}")


# ---- records that are made up -------------------------------------------------------------------------------------

def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def table(path, header, lines):
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(header)
    out.writerows(lines)
    put(path, text.getvalue())


def published(name):
    with open(os.path.join(PUBLISHED, name), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def record(path, change=None, env=None, figures=None, copies=1):
    """The published record, changed: change(row) of cases.csv, env of env.json, figures(row, process) of figures.csv."""
    with open(os.path.join(PUBLISHED, "env.json"), encoding="utf-8") as file:
        text = json.load(file)
    env and env(text)
    put(os.path.join(path, "env.json"), json.dumps(text))
    for name, edit in (("cases.csv", lambda r, p: change and change(r)), ("figures.csv", lambda r, p: figures and figures(r, p))):
        out = []
        for process in range(copies):
            for row in published(name):
                row["process"] = str(process)
                edit(row, process)
                out.append(list(row.values()))
        table(os.path.join(path, name), published(name)[0].keys(), out)
    shutil.copy(os.path.join(PUBLISHED, "trace.json"), path)


def suites(path):
    """Small files of the other suites, with a missed defect."""
    common = ["schema_version", "case_id", "process", "verdict", "reason"]
    table(f"{path}/link.csv", common + ["layout", "method", "direction", "piece_bytes", "GBps", "GBps_lo", "GBps_hi", "ceiling_GBps", "link_share"],
          [["2", f"link:method={m},piece={p},way={w}", "0", "pass", "", "scattered", m, w, p, 3 + i * p ** 0.1, 2 + i * p ** 0.1, 4 + i * p ** 0.1, 12, 0.5]
           for i, m in enumerate(("pinned", "kernel", "gather_1")) for p in (4096, 65536, 1 << 20) for w in ("h2d", "d2h")])
    table(f"{path}/cpu_kernels.csv", common + ["kernel", "layout", "dtype", "ctx", "threads_used", "ns", "GBps", "floor", "floor_lo", "floor_hi", "ceiling_GBps",
                                             "limit", "whole_over_beside", "plan"],
          [["2", f"cpu_kernels:kernel={k},dtype={d},ctx={c}", process, "pass", "", k, "packed", d, c, t, 1e5, 20, 0.7, 0.65, 0.75, 30,
            "memory" if d == "f32" else limit, 0.6 if k == "attend" else 0.125, "39a10815"]
           for process, limit in (("0", "waits"), ("1", "waits: L2")) for k in ("attend", "topk") for d in ("f32", "f16") for c, t in ((1024, 1), (2048, 2))])
    table(f"{path}/lse_merge.csv", common + ["case", "defect", "subject", "err_over_bound", "exact", "to_1_2", "to_1", "found_by", "showed"],
          [["2", f"lse_merge:case={c},by={s}", "0", "pass", "", c, "", s, e, 10, 20, 5, "", ""] for s in ("c", "host") for c, e in (("splits", 0.5), ("ties", 0.9))]
          + [["2", "lse_merge:defect=swapped", "0", "pass", "", "gallery", "swapped", "", "", "", "", "", "case splits", "error 300 times its bound"]])
    table(f"{path}/defects.csv", common + ["defect", "what", "seen_in", "seen_as"],
          [["2", f"defects:defect={n}", "0", v, "", n, "is wrong", s, ""] for n, v, s in (("tail_lost", "pass", "resident:ctx=64"), ("early", "fail", ""))])


def nights(path, many, copies=1):
    rng = random.Random(7)
    for n in range(many):
        factor = {}

        def figure(row, process, factor=factor, n=n):
            if row["better"] in ("less", "more"):
                by = rng.gauss(1, 0.02) * (1.1 if n == many - 1 and row["case_id"].startswith("hgca") else 1)
                for key in ("value", "lo", "hi"):
                    row[key] = repr(float(row[key]) * by) if row[key] else ""

        def env(e, n=n):
            e["build"] = "aaaaaaa" if n < many // 2 else "bbbbbbb"
            e["runs"][0]["date_utc"] = f"2026-10-{n + 1:02d}T01:00:00Z"
        record(f"{path}/2026-10-{n + 1:02d}/run", env=env, figures=figure, copies=copies)
        put(f"{path}/2026-10-{n + 1:02d}/night.json", "{}")


def compare_rows(path, name="", newest="2026-10-03"):
    """As compare prints them."""
    out = [{"row": "record", "index": 0, "side": "base", "name": "2026-10-01"},
           {"row": "record", "index": 1, "side": "new", "name": newest, "path": path},
           {"row": "environment", "name": "kernel", "base": "Linux 6.1", "new": "Linux 6.2 " + name}]
    for i, (case, word, ratio) in enumerate((("hgca:dataset=sinks,ctx=8192,dtype=f16", "slower", 1.1), ("cpu:dataset=sinks,ctx=8192,dtype=f16", "faster", 0.9),
                                             ("h2o:dataset=sinks,ctx=8192,dtype=f16", "same", 1.0), ("resident:ctx=1" + name, "gone", None))):
        out.append({"row": "change", "new": 1, "case_id": case, "suite": "recency_split", "figure": "step_ns", "unit": "ns", "better": "less", "change": word,
                    "by": "code" if i == 0 else "", "part": "memory read", "part_ratio": 1.01, "line": f"line of {word} {name}", "base": 1e5,
                    "value": 1e5 * (ratio or 1), "least": 1.03, "p": 1e-5, **({"ratio": ratio, "lo": ratio - 0.02, "hi": ratio + 0.02} if ratio else {})})
    out.append({"row": "verdict", "exit": 30, "verdict": "slower", "line": "one case is slower by code " + name, "changed": 3, "compared": 4})
    return "".join(json.dumps(row) + "\n" for row in out)


def side_by_side_rows(name=""):
    """As compare prints two machines: of 30 cases one more is faster each time."""
    out = [{"row": "record", "index": 0, "side": "base", "name": "full"}, {"row": "record", "index": 1, "side": "new", "name": "other"},
           {"row": "environment", "name": "cpu", "base": "a CPU", "new": "Another CPU " + name, "kind": "machine", "lost": False},
           {"row": "verdict", "new": 1, "exit": 0, "verdict": "side by side", "line": "two machines " + name, "changed": 0, "compared": 30}]
    for i in range(30):
        out.append({"row": "side", "new": 1, "case_id": f"hgca:ctx={1024 * (i + 1)}" + name, "suite": "s", "speed": ("faster", "even", "slower", "too few")[i % 4],
                    "by": "memory read", "figure": "step_ns", "unit": "ns", "base": 1e5, "value": 7e4, "ratio": 1.43, "lo": 1.38, "hi": 1.47, "tokens_per_s": 1234.5})
    for of, line in (("hgca", None), ("", "B is 1.43 times as fast as A (1.38 to 1.47) over 30 cases " + name)):
        out.append({"row": "faster", "index": 0, "new": 1, "of": of, "cases": 30, "ratio": 1.43, "lo": 1.38, "hi": 1.47, "faster": 8, "even": 8, "slower": 7,
                    "too_few": 7, **({"line": line} if line else {})})
    return "".join(json.dumps(row) + "\n" for row in out)


# ---- what is read -------------------------------------------------------------------------------------------------

def read(text, name="cases.csv", most=50):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        notes = Notes()
        return list(rows(os.path.join(folder, name), notes, name, most)), notes.texts()


def test_reader():
    head = "schema_version,case_id,value\n"
    found, said = read(head + "2,a,1\n2,b,2\n")
    expect("whole rows, no note", [r["case_id"] for r in found] == ["a", "b"] and not said, said)
    for what, text, ids, note in (
            ("a row that is cut off", head + "2,a,1\n2,b", ["a"], "cut off"), ("an empty file", "", [], "is empty"),
            ("another file", "x,y\n1,2\n", [], "no column case_id"), ("another schema", "schema_version,case_id\n9,a\n", ["a"], "schema version '9'"),
            ("a NUL", head + "2,a,1\n2,\0b,2\n2,c,3\n", ["a", "c"], ""), ("too many rows", head + "2,a,1\n" * 60, ["a"] * 50, "first 50 rows"),
            ("no UTF-8", head + "2,\udcff,1\n", ["\ufffd"], ""), ("a field without an end", head + '2,"a,1\n2,b,2\n', [], "cut off")):
        found, said = read(text)
        expect(what, ([r["case_id"] for r in found] == ids or what == "a NUL") and (not note or any(note in s for s in said)), (found, said))
    expect("an old file's id", read("schema_version,id,x\n1,k,2\n")[0][0]["case_id"] == "k")
    for text in ("nan", "inf", "-inf", "", "x", None, "1e999"):
        expect(f"{text} is no number", number(text) is None)
    expect("controls and turned lines are gone", clean("a\x1b[2J\u202eb\n") == "a?[2J?b?")


def test_folders(folder):
    nights(f"{folder}/n", 3)
    notes = Notes()
    runs = Folder("n", runs_in(f"{folder}/n", notes)).runs
    expect("three nights, by date", [r.name for r in runs] == ["2026-10-01", "2026-10-02", "2026-10-03"], [r.name for r in runs])
    series = series_of(runs)
    step = series["hgca:dataset=sinks,ctx=8192,dtype=f16", "step_ns"]
    expect("a figure of each night, slower in the last", len(step.values) == 3 and step.values[2][0] > 1.05 * step.values[1][0], step.values)
    record(f"{folder}/r")
    expect("a record is a run", [r.name for r in runs_in(f"{folder}/r", notes)] == ["r"])
    old = runs_in(os.path.join(ROOT, "results", "2026-11-21-epyc-zen4-2core"), notes)[0]
    expect("a record of schema version 1", old.date == "2026-11-21T09:47:01Z" and old.env["build"] == "9339403" and old.machine()[2] and len(steps_of(old, "")) == 41
           and len(traced_of(old.records[0])) > 30, (old.date, old.machine(), len(traced_of(old.records[0]))))
    os.makedirs(f"{folder}/empty")
    expect("nothing is in an empty folder", runs_in(f"{folder}/empty", notes) == [])
    put(f"{folder}/torn/env.json", '{"cpu": ')
    expect("an env.json that is torn is said", len(runs_in(f"{folder}/torn", notes)) == 1 and any("torn" in t for t in notes.texts()), notes.texts())

    # several processes: the median; two records of a night with the same case: its own process more
    put(f"{folder}/two/night.json", "{}")
    for name, value in (("run", "1"), ("again", "3"), ("check", "99")):
        put(f"{folder}/two/{name}/env.json", "{}")
        table(f"{folder}/two/{name}/figures.csv", ["schema_version", "case_id", "process", "figure", "value", "lo", "hi", "unit", "better"],
              [["2", "a", "0", "step_ns", value, "", "", "ns", "less"], ["2", "a", "1", "step_ns", "-5", "", "", "ns", "less"],
               ["2", "a", "2", "step_ns", "nan", "", "", "ns", "less"]])
    notes = Notes()
    found = series_of(runs_in(f"{folder}/two", notes) * 2)["a", "step_ns"]
    expect("run and again are pooled, check is not", found.values[0] == (2, 1, 3), found.values)
    expect("a negative time and NaN are said", any("negative" in t for t in notes.texts()) and any("no number" in t for t in notes.texts()), notes.texts())

    table(f"{folder}/twice/cases.csv", ["schema_version", "case_id", "process", "verdict"], [["2", "a", "0", "pass"], ["2", "a", "0", "fail"], ["2", "a", "1", "pass"]])
    put(f"{folder}/twice/env.json", "{}")
    notes = Notes()
    twice = runs_in(f"{folder}/twice", notes)[0].records[0]
    expect("a case twice counts once, its processes each", twice.verdicts()["pass"] == 2 and any("twice" in t for t in notes.texts()), (twice.verdicts(), notes.texts()))


def test_trace(folder):
    def span(lane, cat, begin, end):
        return Span(lane, {"cat": cat, "name": "x", "ts": begin, "dur": end - begin})
    step = Traced("a", [span("stream main", "kernel", -5, 30), span("link host to device", "h2d", 20, 50), span("cpu 0", "cpu", 25, 60),
                        span("stream main", "cpu", 60, 70), span("stream main", "wait", 0, 100), span("stream main", "d2d", 90, 120)], 100.0)
    found = step.parts()
    want = {"device kernel": 25 + 10, "kernel and CPU at once": 5, "idle device: link and CPU at work": 20, "idle device: link at work": 0,
            "idle device: CPU at work": 10, "nothing runs": 30}
    expect("the parts of a step", found == want, found)
    record(f"{folder}/t")
    notes = Notes()
    traced = traced_of(runs_in(f"{folder}/t", notes)[0].records[0])
    expect("a traced step of each published case, whose parts add up", len(traced) == 41 and all(
        abs(sum(t.parts().values()) - t.length) < 1e-6 * t.length and set(t.parts()) == set(NAMES) for t in traced.values()), len(traced))
    put(f"{folder}/bad/env.json", "{}")
    put(f"{folder}/bad/trace.json", '{"traceEvents":[5,{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"a"}},'
                                    '{"ph":"X","pid":1,"tid":1,"ts":0,"dur":9,"cat":"step"},{"ph":"X","pid":1,"tid":1,"ts":0,"dur":-4,"cat":"kernel"},'
                                    '{"ph":"X","pid":1,"tid":1,"ts":NaN,"dur":4,"cat":"kernel"},{"ph":"X","pid":"1"},{"ph":"X","pid":1,"tid":1,"ts":"x"}]}')
    traced = traced_of(runs_in(f"{folder}/bad", notes)[0].records[0])
    expect("spans that cannot be are left out, and said", not traced["a"].spans and any("negative" in t for t in notes.texts()), notes.texts())
    put(f"{folder}/bad/trace.json", '{"traceEvents":[')
    expect("a torn trace is none", traced_of(runs_in(f"{folder}/bad", notes)[0].records[0]) == {})


def test_words(folder):
    expect("quantities", (quantity(1234567, "ns"), quantity(0.5, "GB/s"), quantity(None, "ns"), percent(1.1), digits(0.000012)) ==
           ("1.23 ms", "0.500 GB/s", "", "+10.0%", "1.20e-05"), (quantity(1234567, "ns"), quantity(0.5, "GB/s"), digits(0.000012)))
    expect("what is common is left out of names", short_names(["a:x=1,y=2", "a:x=1,y=3"]) == {"a:x=1,y=2": "a:y=2", "a:x=1,y=3": "a:y=3"},
           short_names(["a:x=1,y=2", "a:x=1,y=3"]))
    for names, labels in ((["r7-gpu-01.dc1.net", "r7-gpu-12.dc1.net"], ["…01…", "…12…"]), (["node01", "node02"], ["node01", "node02"]), (["a", "b.c"], ["a", "b.c"]),
                          (["r-1", "r-1-r-1"], ["r-1", "r-1-r-1"]), (["one-1"], ["one-1"]), ([], []), (["x/a", "x/b"], ["…a", "…b"])):
        expect(f"the labels of {names}", list(short_machines(names).values()) == labels, short_machines(names))
    bare = subprocess.run([sys.executable, "-c", "import sys; sys.modules['jinja2'] = sys.modules['markupsafe'] = None; import test_report"],
                          cwd=HERE, stderr=subprocess.PIPE, text=True, check=False)
    expect("this test begins without what only the page needs", bare.returncode == 0, bare.stderr)
    points = [{"x": x, "y": y} for x, y in ((1, 9), (2, 5), (3, 6), (4, 1), (4, 2))]
    expect("the front: none is faster and nearer", front(points) == {0, 1, 3}, front(points))
    put(f"{folder}/rows", compare_rows("p") + "no json\n[1]\n" + '{"row":"change","change":"slower","ratio":NaN,"later":[1]}\n')
    notes = Notes()
    compared = read_rows(f"{folder}/rows", notes)
    expect("the worst change first", [c["change"] for c in compared.moved()] == ["slower", "slower", "gone", "faster"], compared.moved())
    try:
        from report.fleet import STATES
        with open(os.path.join(ROOT, "results", "schema", "fleet.schema.json"), encoding="utf-8") as file:
            states = next(set(row["properties"]["state"]["enum"]) for row in json.load(file)["oneOf"] if "state" in row["properties"])
        expect("each state of a machine has its tone", states == set(STATES), states ^ set(STATES))
    except ImportError:
        print("SKIP: there is no jinja2, so the words of a fleet are not looked at: scripts/setup.sh --report")
    expect("two damaged lines are said", any("no JSON" in t and "2 times" in t for t in notes.texts()), notes.texts())


def test_kernels(folder):
    record(f"{folder}/k")
    suites(f"{folder}/k")

    def shown(columns=()):
        """kernel -> (titles of its table, the distinct values of these columns)"""
        seen = Folder(f"{folder}/k", runs_in(f"{folder}/k", Notes()))
        seen.label = "k"
        figure = kernels_figure([seen])
        return {c.label: ([column.title for column in c.columns], {tuple(row.get(key) for key in columns) for row in c.rows}) for c in figure.choices}

    found = shown(("limit", "plan", "gain"))
    titles = ["limit", "plan", "time over built in"]
    expect("limit, plan and gain are in the tables of kernels", all(t in found["attend"][0] for t in titles), found)
    expect("the words of all processes, and the gain", found["attend"][1] == {("memory", "39a10815", 0.6), ("waits or waits: L2", "39a10815", 0.6)}, found["attend"])
    expect("what is beside another kernel is no gain", {gain for _, _, gain in found["topk"][1]} == {None}, found["topk"])
    path = f"{folder}/k/cpu_kernels.csv"
    with open(path, encoding="utf-8", newline="") as file:
        table_rows = list(csv.reader(file))
    table(path, table_rows[0][:-3], [row[:-3] for row in table_rows[1:]])
    expect("a record before plans has no such columns", not set(titles) & set(shown()["attend"][0]), shown())


# ---- the program --------------------------------------------------------------------------------------------------

def habench(program, *words, where=None):
    done = subprocess.run([program, "report", *words], capture_output=True, text=True, errors="replace", timeout=300, cwd=where, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def refuses(program, what, code, text, *words):
    got, _, err = habench(program, *words)
    expect(f"{what}: exit code {code} and '{text}'", got == code and text in err and "Traceback" not in err, (got, err))


def test_program(program, folder):
    record(f"{folder}/a")
    record(f"{folder}/n/2026-10-01/run")
    record(f"{folder}/n/2026-10-02/run")
    refuses(program, "no folder", 64, "of which DIR?", "-o", f"{folder}/x.html")
    refuses(program, "no output", 64, "-o report.html", f"{folder}/a")
    refuses(program, "another format", 64, "did you mean 'html'?", f"{folder}/a", "--format", "htm")
    os.makedirs(f"{folder}/empty")
    for form in ("csv", "md", "html"):
        to = ("-o", f"{folder}/{form}") # the page needs it
        refuses(program, f"{form} of a folder that is not there", 64, "there is no such folder", f"{folder}/none", "--format", form, *to)
        refuses(program, f"{form} of an empty folder", 64, "no record here", f"{folder}/empty", "--format", form, *to)
    for form in ("csv", "md"):
        refuses(program, f"{form} to a folder that is not there", 40, "cannot write", f"{folder}/a", "--format", form, "-o", f"{folder}/none/x")

    code, out, err = habench(program, f"{folder}/a", f"{folder}/n", "--format", "csv")
    found, want = list(csv.DictReader(io.StringIO(out))), published("figures.csv")
    expect("csv: the figures of all records", code == 0 and len(found) == 3 * len(want), (code, len(found), err))
    expect("csv: with folder and record", [found[i * len(want)]["record"] for i in range(3)] == ["", "2026-10-01/run", "2026-10-02/run"]
           and found[-1]["folder"] == f"{folder}/n", found[-1] if found else "")
    expect("csv: and nothing else of them", [{k: v for k, v in r.items() if k in want[0]} for r in found[:len(want)]] ==
           [{**w, "process": "0"} for w in want])
    path = f"{folder}/a/figures.csv"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    put(path, text[:-30])
    code, out, err = habench(program, f"{folder}/a", f"{folder}/n", "--format", "csv", "-o", f"{folder}/all.csv")
    with open(f"{folder}/all.csv", encoding="utf-8") as file:
        lines = len(list(csv.reader(file)))
    expect("csv: a file that is cut off is said, and the rest written", code == 20 and path in err and lines in (3 * len(want), 3 * len(want) + 1), (code, err, lines))
    put(path, "a,b\n1,2\n")
    refuses(program, "csv: another file", 20, "no column case_id", f"{folder}/a", "--format", "csv")

    def wrong(row):
        if row["case_id"].startswith("h2o"):
            row["verdict"], row["reason"] = "fail", "| <b>@all</b>\n# head `x` " + "y" * 400
    record(f"{folder}/w", change=wrong)
    code, out, err = habench(program, f"{folder}/w", "--format", "md")
    expect("md: the verdict of a record, its failures in short", code == 0 and out.startswith("**habench: wrong**") and " 4 fail" in out, out)
    expect("md: no markup of a reason", "<" not in out.replace("&lt;", "") and "@" not in out and "\n# " not in out and "\\|" in out and "..." in out, out)
    expect("md: short", len(out.splitlines()) < 60 and len(out) < 8000, len(out))
    code, out, err = habench(program, f"{folder}/n", "--format", "md", "-o", f"{folder}/n.md")
    with open(f"{folder}/n.md", encoding="utf-8") as file:
        text = file.read()
    expect("md: of nights, into a file", code == 0 and text.startswith("**habench: ") and not out, (code, text, err))

    # a program without the plotting library beside it
    alone = f"{folder}/alone/bin"
    os.makedirs(alone)
    shutil.copy(program, f"{alone}/habench")
    refuses(f"{alone}/habench", "no scripts beside it", 40, "ninja install", f"{folder}/w", "-o", f"{folder}/x.html")
    shutil.copytree(os.path.join(HERE, "report"), f"{folder}/alone/share/habench/scripts/report", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(os.path.join(HERE, "report.py"), f"{folder}/alone/share/habench/scripts")
    refuses(f"{alone}/habench", "no library", 40, "scripts/setup.sh --report", f"{folder}/w", "-o", f"{folder}/x.html")
    put(f"{folder}/alone/lib/habench/report/vega.js", "var x;")
    refuses(f"{alone}/habench", "another library", 40, "scripts/setup.sh --report", f"{folder}/w", "-o", f"{folder}/x.html")
    expect("no page is left of what failed", not [n for n in os.listdir(folder) if n.startswith("x.html")], os.listdir(folder))
    if os.path.exists(f"{LIBRARY}/vega.js"):
        shutil.copytree(LIBRARY, f"{folder}/alone/lib/habench/report", dirs_exist_ok=True)
        code, out, err = habench(f"{alone}/habench", f"{folder}/w", "-o", "page.html", where=folder)
        expect("a program that is installed elsewhere makes a page", code == 0 and not out and os.path.getsize(f"{folder}/page.html") > 1e6, (code, err))
        refuses(program, "a page into a folder that is not there", 40, "cannot write", f"{folder}/w", "-o", f"{folder}/none/x.html")
        refuses(program, "a page of an empty folder", 64, "no record here", f"{folder}/empty", "-o", f"{folder}/x.html")


# ---- the page -----------------------------------------------------------------------------------------------------

def page(out, *folders, text=None):
    """Exit code and what was said."""
    words = [sys.executable, os.path.join(HERE, "report.py"), "-o", out]
    if text is not None:
        put(out + ".rows", text)
        words += ["--rows", out + ".rows"]
    done = subprocess.run(words + list(folders), capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def fields(part):
    """The fields that a part of a specification takes from the rows of its table."""
    if isinstance(part, list):
        return set().union(*map(fields, part))
    if not isinstance(part, dict) or "values" in part.get("data", {}):
        return set()
    own = {part["field"]} if isinstance(part.get("field"), str) else set()
    return own.union(*map(fields, part.values()))


SOMETIMES = {"page", "lo", "hi", "part_ratio", "mark", "event", "name", "side", "kind", "bytes", "least"}  # may be empty in every row


def drawn_of(text):
    """Figures whose plots take what their tables have not, or what is empty in every row."""
    out = []
    for figure in json.loads(re.search('id="data">(.*?)</script>', text).group(1)):
        for choice in figure["choices"]:
            history = "nights" in figure
            columns, spec = (figure if history else choice)["columns"], (figure if history else choice)["spec"]
            keys = [c[0] for c in columns]
            empty = [] if history else [k for i, k in enumerate(keys) if all(row[i] in (None, "") for row in choice["rows"])]
            shown = set().union(*(fields({k: v for k, v in layer.get("encoding", {}).items() if k != "tooltip"}) for layer in spec["layer"] if "data" not in layer))
            if shown - set(keys) or shown & set(empty) - SOMETIMES:
                out.append((figure["name"], choice["label"], sorted(shown - set(keys)), sorted(shown & set(empty) - SOMETIMES)))
    return out


def test_room():
    rows_ = [{"a": i} for i in range(10 * charts.POINTS_MAX)]
    many = [charts.Choice(str(i), {}, [charts.Column("a", "a")], rows_) for i in range(200)]
    figure = charts.Figure("f", "f", "f", many)
    expect("a figure has room for so many points", len(many[0].rows) == charts.POINTS_MAX and "first" in many[0].note and len(figure.choices) * charts.POINTS_MAX
           <= charts.ALL_POINTS_MAX and "no room" in figure.text, (len(many[0].rows), len(figure.choices), figure.text))
    figure = charts.Figure("f", "f", "f", [charts.Choice(str(i), {}, [charts.Column("a", "a")], [{"a": 1}]) for i in range(200)])
    expect("and for so many plots", len(figure.choices) == charts.CHOICES_MAX, len(figure.choices))


def test_page(folder):
    """Pages of all kinds: name -> path."""
    pages = {}

    def make(name, *folders, text=None):
        pages[name] = f"{folder}/{name}.html"
        code, said = page(pages[name], *folders, text=text)
        expect(f"the page {name} is made", code == 0 and not said, (code, said))
        with open(pages[name], encoding="utf-8") as file:
            text = file.read()
        expect(f"{name}: what is drawn is in the tables", not drawn_of(text), drawn_of(text)[:3])
        return text

    record(f"{folder}/full")
    suites(f"{folder}/full")
    text = make("record", f"{folder}/full")
    expect("its own verdict: a defect was missed", '<section class="verdict bad"' in text and ">wrong<" in text, re.findall("<section class=.verdict.*", text))
    expect("nothing of a network", not re.search(r"<(script|link|img)[^>]*(src|href)=[\"']?(https?:|//)", text) and "default-src 'none'" in text)

    nights(f"{folder}/nights", 3, copies=2)
    text = make("nights", f"{folder}/nights", text=compare_rows(f"{folder}/nights/2026-10-03"))
    expect("compare's verdict and lines", '<section class="verdict bad"' in text and ">slower<" in text and "line of slower" in text and "line of faster" in text
           and "line of same" not in text)
    data = json.loads(re.search('id="data">(.*?)</script>', text).group(1))
    history = next(f for f in data if f["name"].startswith("history"))
    expect("the change stands at its night, first of all figures", history["choices"][0].get("marks") == {"2": "slower"}
           and history["choices"][0]["label"].startswith("step_ns  hgca"), history["choices"][0])
    expect("where the build changed", [n[3] for n in history["nights"]] == ["", "build aaaaaaa -> bbbbbbb", ""], history["nights"])

    def other(env):
        env["cpu"] = "Another CPU"
    record(f"{folder}/other", env=other)
    suites(f"{folder}/other")
    text = make("machines", f"{folder}/full", f"{folder}/other")
    data = json.loads(re.search('id="data">(.*?)</script>', text).group(1))
    units = {c[2] for f in data if f["name"] in ("steps", "quality", "link") for choice in f["choices"] for c in choice["columns"] if c[0] in ("x", "y")}
    expect("of different machines no absolute times or rates", "different machines" in text and not units & {"ms", "GB/s"} and "x" in units, units)
    text = make("side by side", f"{folder}/full", f"{folder}/other", text=side_by_side_rows())
    expect("two machines: who is faster, on top and by case, and no box of good or bad", 'class="verdict plain"' in text and "1.43 times as fast" in text
           and "1.43 (1.38 to 1.47)" in text and text.count("memory read</td>") == 30 and "<summary>5 more" in text and ">side by side<" in text)
    text = make("same machine", f"{folder}/full", f"{folder}/nights")
    expect("of one machine times", "different machines" not in text and '"ms"' in text)

    def hostile(row):
        for key in ("variant", "params", "dataset", "reason"):
            row[key] += HOSTILE
        row["case_id"] += HOSTILE
        row["verdict"] = "fail" if row["variant"].startswith("h2o") else row["verdict"]

    def named(env):
        for key in ("cpu", "kernel", "build"):
            env[key] += HOSTILE
        env["devices"][0]["name"] = env["devices"][0]["kind"] = HOSTILE
        env["devices"][0]["ceilings"][HOSTILE] = {"median": 1, "lo": 1, "hi": 2, "unit": HOSTILE}
        env["runs"][0]["command"] = env["runs"][0]["date_utc"] = HOSTILE
    bad = f"{folder}/<script>window.hit=3<"
    for n in (1, 2):
        record(f"{bad}/{n}", change=hostile, env=named, figures=lambda row, p: row.update(case_id=row["case_id"] + HOSTILE, unit=HOSTILE))
        with open(f"{bad}/{n}/trace.json", encoding="utf-8") as file:
            trace = json.load(file)
        for event in trace["traceEvents"]:
            event["name"] = event["name"] if event["ph"] == "M" else HOSTILE
            if event["name"] == "process_name":
                event["args"]["name"] += HOSTILE
        put(f"{bad}/{n}/trace.json", json.dumps(trace))
    text = make("hostile", bad, text=compare_rows("p", HOSTILE))
    with open(f"{LIBRARY}/vega.js", encoding="utf-8", newline="") as file:
        text = text.replace(file.read(), "")
    expect("no markup of a name", text.count("<script") == 3 and text.count("</script") == 3 and "<img" not in text and "\u202e" not in text,
           (text.count("<script"), text.count("</script"), "<img" in text))

    record(f"{folder}/torn")
    for name in ("cases.csv", "figures.csv", "trace.json", "env.json"):
        with open(f"{folder}/torn/{name}", encoding="utf-8") as file:
            text = file.read()
        put(f"{folder}/torn/{name}", text[:len(text) * 2 // 3])
    text = make("torn", f"{folder}/torn")
    expect("what is torn is said", "cut off" in text and "trace.json: cannot be read" in text and "env.json: cannot be read" in text)

    def odd(row):
        row["step_ns"] = {"hgca": "nan", "h2o": "-5", "cpu": "inf", "offload": "x", "streaming": "1e999"}.get(row["variant"], row["step_ns"])
        row["rel_l2"], row["ctx_len"] = "-1", row["ctx_len"] if row["variant"] != "resident" else "x"
    record(f"{folder}/odd", change=odd)
    table(f"{folder}/odd/link.csv", ["schema_version", "case_id", "verdict", "GBps", "piece_bytes"], [["2", "a", "pass", "-1", "nan"], ["2", "b", "pass", "0", "0"]])
    make("odd", f"{folder}/odd")
    put(f"{folder}/bare/env.json", "{}")
    text = make("bare", f"{folder}/bare")
    expect("a record without anything", "no row of a case" in text)
    put(f"{folder}/turned/env.json", json.dumps({"cpu": [1], "devices": "x", "runs": [5], "schema_version": {}, "cores": {"a": 1}}))
    make("turned", f"{folder}/turned", text="[]\nnull\n")

    nights(f"{folder}/month", 30, copies=2)
    for night in os.listdir(f"{folder}/month"):  # some 2,000 figures a night
        with open(f"{folder}/month/{night}/run/figures.csv", encoding="utf-8") as file:
            head, *lines = file.read().splitlines()
        put(f"{folder}/month/{night}/run/figures.csv", "\n".join([head] + lines + [line.replace("dtype=f16", "dtype=bf16") for line in lines]) + "\n")
    text = make("month", f"{folder}/month")
    expect("30 nights are below 8 MB", len(text.encode()) < PAGE_MAX, len(text.encode()))
    put(f"{folder}/big/env.json", '{"schema_version":2,"cpu":"x"}')
    for name, head, line in (("cases.csv", "schema_version,case_id,process,verdict,variant,ctx_len,step_ns,dataset", "2,resident:ctx={0},0,pass,v{1},{0},{0}1,sinks\n"),
                             ("figures.csv", "schema_version,case_id,process,figure,value,lo,hi,unit,better", "2,resident:ctx={0},0,step_ns,{0}1,,,ns,less\n")):
        put(f"{folder}/big/{name}", head + "\n" + "".join(line.format(i, i % 1000) for i in range(1_000_000)))
    text = make("big", f"{folder}/big")
    expect("of a million rows what fits, and that it is not all", len(text.encode()) < PAGE_MAX and "only the first 20,000 rows are read" in text, len(text.encode()))
    code, said = page(f"{folder}/x.html", f"{folder}/none")
    expect("a folder that is not there: one line", code == 64 and said.count("\n") == 1 and "there is no such folder" in said, said)
    return pages


def fleet_rows(name=""):
    """As `habench compare --fleet` prints them: 60 machines, of which three stand out, one is wrong and one is not here."""
    rng = random.Random(3)
    out = [{"row": "fleet", "path": "p", "machines": 60, "expected": 61, "groups": 1, "exit": 10, "verdict": "wrong", "line": "node01 computes wrong results " + name},
           {"row": "group", "index": 0, "name": "a CPU " + name, "machines": 60, "facts": {"cpu": "a CPU " + name},
            "differs": [{"name": "firmware", "values": [{"value": "1.2 " + name, "count": 59, "machines": ["node02"]}, {"value": "1.3", "count": 1, "machines": ["node01"]}]}]}]
    for i in range(50):
        out.append({"row": "figure", "group": 0, "case_id": f"hgca:ctx={i}" + name, "mode": "run", "suite": "nightly", "figure": "step_ns", "unit": "ns", "better": "less",
                    "share": False, "machines": 60, "median": 1e5, "spread": 0.01, "quantiles": [9.7e4, 9.8e4, 9.9e4, 1e5, 1.01e5, 1.02e5, 1.03e5], "least": 1.04})
    for i in range(60):
        state, line = {0: ("stands out", "has a name that leads outside"), 1: ("wrong", "computes wrong results"), 2: ("stands out", "link at half of its width"), 3: ("stands out", "memory read 5.1% below the median")}.get(
            i, ("fits", ""))
        out.append({"row": "machine", "name": f"node{i:02}" if i else "../node00" + name, "group": 0, "state": state, "suspicion": 60 - i, "part": "link" if i == 2 else "",
                    "figures": 3, "line": line + name})
    out.append({"row": "machine", "name": "node60", "group": None, "state": "never answered", "suspicion": 0, "part": "", "figures": 0, "line": "expected, and never answered"})
    for i in range(1, 50):
        for k in range(50):
            sigmas = 20.0 if i < 4 and k < 5 else rng.gauss(0, 1)
            out.append({"row": "deviation", "machine": f"node{i:02}", "group": 0, "case_id": f"hgca:ctx={k}" + name, "figure": "step_ns", "value": 1e5 * (1 + sigmas / 100),
                        "ratio": 1 + sigmas / 100, "sigmas": sigmas, "p": 0.1, "called": sigmas > 10})
    out.append({"row": "outputs", "group": 0, "case_id": "quest:ctx=1" + name, "digest": "0" * 16, "agree": 59, "disagree": [{"name": "node03" + name, "digest": "1" * 16}]})
    out.append({"row": "shift", "before": "before" + name, "now": "p", "machines": 60, "gone": 1, "added": 0, "worse": 1.02, "lo": 1.01, "hi": 1.03, "exit": 20})
    for i in range(60):
        out.append({"row": "machine_shift", "name": f"node{i:02}" + name, "worse": 1.2 if i == 5 else 1.02, "sigmas": 9.0, "p": 1e-9, "called": i == 5})
        out.append({"row": "figure_shift", "case_id": f"hgca:ctx={i}" + name, "mode": "run", "suite": "nightly", "figure": "step_ns", "better": "less", "machines": 60,
                    "worse": 0.9 if i == 7 else 1.01, "lo": 0.89 if i == 7 else 1.0, "hi": 0.91 if i == 7 else 1.02, "p": 0.5, "called": False})
    return "".join(json.dumps(row) + "\n" for row in out)


def test_fleet(folder, pages):
    """A fleet's page, and those of its suspects; of rows that are whole, hostile, torn."""
    def make(name, text, fleet):
        pages[name] = f"{folder}/{name}.html"
        put(pages[name] + ".rows", text)
        done = subprocess.run([sys.executable, os.path.join(HERE, "report.py"), "-o", pages[name], "--rows", pages[name] + ".rows", "--fleet", fleet],
                              capture_output=True, text=True, timeout=300)
        expect(f"the page {name} is made", done.returncode == 0 and not done.stderr, (done.returncode, done.stderr))
        with open(pages[name], encoding="utf-8") as file:
            text = file.read()
        expect(f"{name}: what is drawn is in the tables", not drawn_of(text), drawn_of(text)[:3])
        return text

    fleet = f"{folder}/halls"
    for i in (1, 2):
        record(f"{fleet}/node{i:02}")
    record(f"{folder}/node00")
    put(f"{fleet}/node01.rank.json", json.dumps({"machine": "node01"}))
    text = make("fleet", fleet_rows(), fleet)
    expect("the verdict, what is not here, who stands out", ">wrong<" in text and "node60" in text and "link at half of its width" in text and "never answered" in text)
    expect("what became of it since the fleet before", "Beside before: 60 machines in both, 1 gone: all times and rates +2.0% (+1.0% to +3.0%), above 0 is worse" in text)
    expect("what differs in a group", "firmware" in text and "1.3" in text)
    expect("outputs that disagree", "1111111111111111" in text and "node03" in text)
    expect("a machine that fits is in no table", not re.search("<b>node04</b>", text))
    expect("a suspect's page, where it has a record", 'href="fleet.machines/node01.html"' in text and os.path.getsize(f"{folder}/fleet.machines/node02.html") > 1e5
           and not os.path.exists(f"{folder}/fleet.machines/node03.html"), sorted(os.listdir(f"{folder}/fleet.machines")))
    expect("it is not said to be simulated", "Simulated" not in text)
    put(f"{fleet}/node01.rank.json", json.dumps({"machine": "node01", "simulated": True}))
    expect("or it is", "Simulated" in make("fleet_simulated", fleet_rows(), fleet))
    text = make("fleet_hostile", fleet_rows(HOSTILE), f"{folder}/halls")
    with open(f"{LIBRARY}/vega.js", encoding="utf-8", newline="") as file:
        text = text.replace(file.read(), "")
    expect("no markup of a name", text.count("<script") == 3 and text.count("</script") == 3 and "<img" not in text and "\u202e" not in text)
    expect("no page outside of its folder", not os.path.exists(f"{folder}/node00.html"), os.listdir(folder))
    whole = fleet_rows()
    text = make("fleet_torn", whole[:len(whole) * 2 // 3] + "\n[1]\nnull\n", fleet)
    expect("lines that are torn are said", "no JSON is left out" in text)
    for what, rows_ in (("no rows", ""), ("no verdict", '{"row":"group"}\n')):
        put(f"{folder}/none.rows", rows_)
        done = subprocess.run([sys.executable, os.path.join(HERE, "report.py"), "-o", f"{folder}/none.html", "--rows", f"{folder}/none.rows", "--fleet", fleet],
                              capture_output=True, text=True, timeout=300)
        expect(f"{what}: one line, no page", done.returncode == 40 and done.stderr.count("\n") == 1 and not os.path.exists(f"{folder}/none.html"), done.stderr)


MARKS = """[...document.querySelectorAll('section.figure')].map(s => [s.id,
    s.querySelectorAll('.plot svg .role-mark path, .plot svg .role-mark line, .plot svg .role-mark rect, .plot svg .role-mark text').length])"""
# each further choice of each figure, up to six of them
CHOICES = """(async () => { const out = [];
    for (const s of document.querySelectorAll('section.figure')) { const select = s.querySelector('select');
        for (let i = 1; select && i < Math.min(6, select.options.length); i++) {
            const before = s.view; select.value = select.options[i].value; select.dispatchEvent(new Event('change'));
            for (let k = 0; k < 200 && s.view === before; k++) await new Promise(r => setTimeout(r, 20));
            if (s.view === before) { out.push([s.id + ' ' + i, 0]); return out; } // it is not drawn: nor are others, and each would be waited for
            out.push([s.id + ' ' + i, s.querySelectorAll('.plot svg .role-mark path, .plot svg .role-mark line, .plot svg .role-mark rect').length]); } }
    return out; })()"""
TABLES = """(async () => { const out = [];
    for (const d of document.querySelectorAll('section.figure details.data')) { d.open = true;
        for (let k = 0; k < 100 && !d.querySelector('td'); k++) await new Promise(r => setTimeout(r, 20));
        out.push([d.closest('section').id, d.querySelectorAll('td').length]); }
    return out; })()"""
# where a click onto a machine's square leads to: Vega makes a link and clicks onto that
CLICK = """(async () => { let to = null; HTMLAnchorElement.prototype.dispatchEvent = function () { to = this.getAttribute('href'); return true; };
    const square = [...document.querySelectorAll('#heat svg path')].filter(p => p.__data__ && p.__data__.href && p.__data__.datum.machine === 'node01')[0];
    if (square) square.dispatchEvent(new MouseEvent('click', {bubbles: true}));
    for (let k = 0; k < 50 && !to; k++) await new Promise(r => setTimeout(r, 20));
    return to; })()"""
SHOWN = {"record": {"steps", "where", "timeline", "quality", "kernels", "link", "merges", "gallery", "ceilings"},
         "nights": {"forest", "steps", "where", "timeline", "quality", "history0", "ceilings"}, "machines": {"steps", "where", "quality", "kernels", "link"},
         "hostile": {"forest", "steps", "where", "timeline", "history0", "ceilings"}, "month": {"history0"}, "odd": {"steps"}, "side by side": {"steps", "where", "quality", "kernels", "link"},
         "fleet": {"heat", "shift", "strips"}, "fleet_hostile": {"heat", "shift", "strips"}}


# of each figure the part of a page of A4 or letter that it takes in print, at the width of a page
PRINTED = """[...document.querySelectorAll('section.figure')].map(s => [s.id, s.getBoundingClientRect().height / (25.1 / 2.54 * 96)])"""


def refusal_of(fault):
    try:
        return str(parse_faults([fault])) and ""
    except SystemExit as said:
        return str(said)


def test_faults():
    for fault, said in (("clock=1", "a size is below 1"), ("half=2:3", "a size is below 1"), ("clock=0.5.1", "0.5.1 is no number"), ("memory=.", ". is no number"),
                        ("nothing", "there are memory,"), ("clock=0.5", ""), ("memory=.5", ""), ("launch=1.5:2", ""), ("bit", "")):
        refusal = refusal_of(fault)
        expect(f"--fault {fault}: {said or 'taken'}", said in refusal and bool(said) == bool(refusal) and "\n" not in refusal, refusal)


def test_browser(pages, program):
    with Browser(program) as browser:
        for name, path in pages.items():
            for width, dark in ((1200, False), (360, True)):
                browser.open(path, width, dark)
                marks = dict(browser.value(MARKS))
                expect(f"{name} at {width}: each plot has marks", all(marks.values()) and SHOWN.get(name, set()) <= set(marks), marks)
                wide = browser.value("document.documentElement.scrollWidth")
                expect(f"{name} at {width}: nothing to scroll to the side", wide <= width, wide)
                if width == 1200:
                    again = browser.value(CHOICES)
                    expect(f"{name}: each choice has marks", all(n for _, n in again), [a for a in again if not a[1]])
                    tables = browser.value(TABLES)
                    expect(f"{name}: each plot's data behind a click", len(tables) == len(marks) and all(n for _, n in tables), tables)
                    expect(f"{name}: still nothing to scroll", browser.value("document.documentElement.scrollWidth") <= width)
                back, ink = browser.value("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
                light = [sum(map(int, re.findall(r"\d+", c)[:3])) for c in (back, ink)]
                if name == "fleet":
                    expect("a click into the plot leads to a machine's page", browser.value(CLICK) == "fleet.machines/node01.html", browser.value(CLICK))
                expect(f"{name}: {'dark' if dark else 'light'} as asked", (light[0] < light[1]) == dark, (back, ink))
                expect(f"{name}: nothing of a name runs", browser.value("typeof window.hit") == "undefined" and browser.value("document.images.length") == 0)
                said = browser.complaints()
                expect(f"{name} at {width}: no error, no warning, no network", not said, said)
            browser.print_media(True)
            parts = browser.value(PRINTED)
            expect(f"{name}: in print two figures fit a page", all(part < 0.5 for _, part in parts) or "hostile" in name, parts)  # whose words have no end
            browser.print_media(False)
            expect(f"{name}: a PDF", browser.pdf()[:5] == b"%PDF-")


def main(program, scope):
    with tempfile.TemporaryDirectory() as folder:
        new = lambda name: os.path.join(folder, name)
        test_program(program, new("program"))
        if scope != "small":
            test_reader()
            test_folders(new("folders"))
            test_trace(new("trace"))
            test_words(new("words"))
            test_kernels(new("kernels"))
            test_room()
            test_faults()
            if not os.path.exists(f"{LIBRARY}/vega.js"):
                print("SKIP: build/report is not there, so no page is made: scripts/setup.sh --report")
            else:
                pages = test_page(new("pages"))
                test_fleet(new("fleets"), pages)
                if chromium():
                    test_browser(pages, chromium())
                else:
                    print("SKIP: there is no Chromium, so no page is looked at: apt install chromium")
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all")
