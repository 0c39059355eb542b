#!/usr/bin/env python3
"""test_verdicts.py PROGRAM [SCOPE [ROUNDS [SEED]]]: the table of `habench compare`, its JSON lines, its JUnit file, its exit code, and
Markdown and page of `habench report` say the same of folders that are drawn at random. SCOPE "small": three rounds, without pages."""

import csv
import html
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from html.parser import HTMLParser

LIBRARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "report")
ENOUGH = 12  # processes, to call a change
# the code that counts goes first; what a change of each word comes to, as docs/compare.md has it
EXITS = (10, 30, 20, 40, 0)
WORDS = {"wrong": 10, "other bits": 10, "slower": 30, "worse": 30, "other result": 30, "not judged": 20, "gone": 20, "waived": 20, "suspicious": 20,
         "disturbed": 40, "faster": 0, "better": 0, "perhaps faster": 0, "perhaps better": 0, "added": 0, "same": 0, "unclear": 0}
CAUSES = ("machine", "code", "software", "both", "undecided")
NIGHT = {10: "wrong", 30: "slower", 20: "not all ran", 40: "not fit to judge", 0: "nothing changed"}
# at most: lines of one kind in the table; lines in Markdown; points in the plot
TABLE_MOST, MARKDOWN_MOST, PLOT_MOST = 10, 20, 40
LINE = 250  # so much of a line Markdown has in any case
count, count_of = {True: 0, False: 0}, Counter()


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:600]}")


# ---- folders that are drawn ---------------------------------------------------------------------------------------

FIGURES = {"step_ns": ("ns", "less"), "GBps": ("GB/s", "more"), "gpu_idle": ("", "less"), "err_over_bound": ("", "neither"),
           "beside_read_GBps": ("GB/s", "more"), "beside_flops_GFLOPps": ("GFLOP/s", "more")}


def plain(row):
    pass


def by_code(row):
    row["step_ns"] *= 1.3


def by_machine(row):
    row["step_ns"] *= 1.3
    row["beside_read_GBps"] /= 1.3


def by_both(row):
    row["step_ns"] *= 1.6
    row["beside_read_GBps"] /= 1.25


def unsaid(row):
    row["step_ns"] *= 1.4
    del row["beside_read_GBps"], row["beside_flops_GFLOPps"]


def faster(row):
    row["step_ns"] *= 0.7


def slower_rate(row):
    row["GBps"] *= 0.6


def idler(row):
    row["gpu_idle"] *= 3


def less_idle(row):
    row["gpu_idle"] /= 3


def error_grown(row):
    row["err_over_bound"] *= 30


def untimed(row):
    del row["step_ns"], row["GBps"]


# of a case that the new record has: what becomes of its figures, its verdict
QUIET = [(plain, "pass"), (plain, "suspect"), (faster, "pass"), (less_idle, "pass")]
MISSING = [(untimed, "pass"), (plain, "error"), (plain, "waived"), (plain, None)]
SLOWER = [(change, "pass") for change in (by_code, by_machine, by_both, unsaid, slower_rate, idler, error_grown)]
WRONG = [(plain, "fail"), (plain, "bits"), (faster, "bits")]  # bits: a pass whose first process left other outputs
DISTURBED = [(plain, "load")]  # a pass, beside which something else used the cores


def record(path, rng, cases, processes, cpu="a CPU", date="2026-11-01", spread=0.003, build="b"):
    """cases: id -> (what becomes of its figures, verdict; None: no row, share of processes at a slow speed)"""
    os.makedirs(path)
    with open(f"{path}/env.json", "w", encoding="utf-8") as file:
        json.dump({"schema_version": 2, "mode": "run", "build": build, "cpu": cpu, "cores": 2, "kernel": rng.choice(("Linux 1", "Linux <2>")),
                   "devices": [], "runs": [{"date_utc": date + "T01:00:00Z"}]}, file)
    rows, figures = [], []
    for case, (change, verdict, slow) in cases.items():
        for process in range(processes if verdict else 0):
            judged, disturbed = ("pass", verdict if verdict == "load" else "") if verdict in ("load", "bits") else (verdict, "")
            outputs = ("b" if verdict == "bits" and not process else "a") * 16 if judged == "pass" else ""
            rows.append((2, case, process, "s", judged, "" if judged == "pass" else "| <why> & \"@all\" `x`", disturbed, outputs))
            values = {name: rng.gauss(1, spread) for name in FIGURES}
            for name, typical in (("step_ns", 1e6), ("GBps", 20), ("gpu_idle", 0.1), ("err_over_bound", 0.01)):
                values[name] *= typical
            values["step_ns"] *= 1.4 if rng.random() < slow else 1
            change(values)
            figures += [(2, case, process, "s", name, value, *FIGURES[name], judged) for name, value in values.items()]
    for name, head, lines in (("cases.csv", "schema_version,case_id,process,suite,verdict,reason,disturbed,outputs", rows),
                              ("figures.csv", "schema_version,case_id,process,suite,figure,value,unit,better,verdict", figures)):
        with open(f"{path}/{name}", "w", encoding="utf-8", newline="") as file:
            file.write(head + "\n")
            csv.writer(file, lineterminator="\n").writerows(lines)


def draw(path, rng, turn):
    """A base of some nights, and new records; what `habench compare` is to be asked, and what `habench report`. Of four turns one has
    little that is new, one a folder of nights alone, whose newest is held against the others, and one several new records."""
    ids = [f"v{i}<b>&amp;:ctx={i},x=|{i}|*_`" for i in range(rng.randint(8, 24))]
    two = set(rng.sample(ids, len(ids) // 4))
    before = {i: (plain, "pass", 0.3 if i in two else 0) for i in ids if rng.random() < 0.85 or i == ids[0]}
    processes = rng.choice((1, 5)) if turn % 8 > 5 else ENOUGH
    for night in range(rng.choice((2, 4))):
        record(f"{path}/nights/2026-10-{night + 1:02d}", rng, before, ENOUGH, date=f"2026-10-{night + 1:02d}")
    after, newer = [], rng.choice((2, 3)) if turn % 4 == 2 else 1
    for n in range(newer):
        cases = {i: (plain, "pass", 0.3 if i in two else 0) for i in before}
        quiet = newer > 1 and n == (0 if turn % 8 == 2 else newer - 1)  # so the worst is not always the first, nor the last
        if turn % 8 and not quiet:
            lots = QUIET + {1: MISSING, 2: SLOWER + MISSING, 3: SLOWER + MISSING, 4: DISTURBED, 5: SLOWER + DISTURBED}.get(turn % 8, SLOWER + MISSING + WRONG + DISTURBED)
            slow = 0.3 if turn % 8 in (1, 4) else 0.8  # other shares are slower
            cases = {i: (*rng.choice(lots), slow if i in two else 0) for i in ids}
            cases[ids[0]] = (plain, "pass", 0)  # a record without any row is refused
        after.append(f"{path}/new{n}/run")
        record(after[-1], rng, cases, processes, cpu="another CPU" if turn % 4 > 1 and rng.random() < 0.2 else "a CPU",
               spread=0.07 if turn % 4 == 3 else 0.003, build="b" if turn % 3 else "c")
    if turn % 4 == 1:
        newest = f"{path}/nights/2026-10-31"
        os.rename(after[0], newest)
        return [f"{path}/nights", newest], [f"{path}/nights"]
    return [f"{path}/nights", *after], [f"{path}/nights", *after]


# ---- what is said -------------------------------------------------------------------------------------------------

def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


class Said:
    """The JSON lines of compare, with which all else is held; night: of a folder of nights and its newest."""

    def __init__(self, text, night):
        self.night = night
        rows = [json.loads(line) for line in text.splitlines()]
        self.verdicts = [row for row in rows if row["row"] == "verdict"]
        self.changes = [row for row in rows if row["row"] == "change"]
        self.loud = [row for row in self.changes if row["loud"]]
        self.name = {row["index"]: row["path"] for row in rows if row["row"] == "record"}
        self.others, index = set(), 0  # new records of another machine
        for row in rows:
            index = row["index"] if row["row"] == "record" else index
            if row["row"] == "environment" and row["name"] == "cpu":
                self.others.add(index)
        self.speeds = [row for row in rows if row["row"] == "side"]
        self.worst = min(self.verdicts, key=lambda row: EXITS.index(row["exit"]))

    def new(self, row):
        """Which record a row is of, where there are several."""
        return self.name[row["new"]] if len(self.verdicts) > 1 else ""

    def codes(self, row):
        return [WORDS[c["change"]] for c in self.changes if c["new"] == row["new"]]

    def exit(self, row):
        """That of the worst change; of two machines a case that the base has not is missing, too."""
        codes = self.codes(row)
        if row["new"] in self.others and any(c["new"] == row["new"] and c["change"] == "added" for c in self.changes):
            codes.append(20)
        return next(e for e in EXITS if e in codes or e == 0)


def hold_json(where, said, code):
    for row in said.verdicts:
        first, two = said.exit(row), row["new"] in said.others
        blind = first == 0 and row["verdict"] == "nothing can be said"
        expect(f"{where}: the verdict is that of its worst change", row["exit"] == (20 if blind else first), row)
        slower = any(c["new"] == row["new"] and c["change"] in ("slower", "worse") for c in said.changes)
        word = "all ran" if two and not first else "other results" if first == 30 and not slower else NIGHT[row["exit"]]
        expect(f"{where}: and its word that of its code", row["verdict"] in (word, "nothing can be said"), row)
        expect(f"{where}: and begins its line", row["line"].startswith(f"{row['verdict']}: {row['changed']} change"), row)
        expect(f"{where}: which counts what is loud", row["changed"] == sum(c["new"] == row["new"] for c in said.loud), row)
    for c in said.changes:
        expect(f"{where}: a change's line names its case and figure", c["line"].startswith(c["case_id"]) and c.get("figure", "") in c["line"], c)
    expect(f"{where}: exit code", code == said.worst["exit"], (code, said.worst))
    expect(f"{where}: two machines are side by side", bool(said.others) == bool(said.speeds), said.others)


def hold_table(where, said, text):
    """Lines that stand on top, of each record and kind the first ten; the verdict of each record."""
    kinds = {"slower": "worse", "faster": "better", "perhaps faster": "perhaps better"}
    lines, printed = Counter(text.splitlines()), Counter()
    for c in said.loud:
        words = c["change"] + (", " + c["by"] if c["by"] else "")
        if lines[f"{words:<18} {c['line']}"]:
            lines[f"{words:<18} {c['line']}"] -= 1
            printed[c["new"], kinds.get(c["change"], c["change"])] += 1
    of = Counter((c["new"], kinds.get(c["change"], c["change"])) for c in said.loud)
    expect(f"{where}: the table's lines", printed == {k: min(n, TABLE_MOST) for k, n in of.items()}, (printed, of))
    expect(f"{where}: of two machines nothing has changed", len(said.others) < len(said.verdicts) or "nothing changed" not in text, text)
    expect(f"{where}: the table's verdicts", all(lines[v["line"]] for v in said.verdicts), text)


def hold_junit(where, said, path):
    """Each case fails with its worst change; and something fails where the exit code does."""
    worst = {}
    for c in said.changes:
        key = f"{said.name[c['new']]}.{c['mode']}", c["case_id"]
        worst[key] = min(worst.get(key, 0), WORDS[c["change"]], key=EXITS.index)
    root, found = xml.parse(path).getroot(), {}
    for case in root.iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        found[case.get("classname"), case.get("name")] = next((e for e in EXITS if bad and bad[0].get("message") == NIGHT[e]), 0)
        expect(f"{where}: JUnit's kind of failure", all((b.tag == "error") == (b.get("message") in (NIGHT[20], NIGHT[40])) for b in bad), xml.tostring(case))
    own = found.pop(("habench", "verdict"), None)
    expect(f"{where}: JUnit's cases", found == worst, (found, worst))
    code = min(list(found.values()) + [own or 0], key=EXITS.index)
    expect(f"{where}: JUnit fails as the exit code does", code == said.worst["exit"], (code, own, said.worst))
    failing, missing = (sum(len(case.findall(tag)) for case in root.iter("testcase")) for tag in ("failure", "error"))
    expect(f"{where}: JUnit's sums", (root.get("failures"), root.get("errors")) == (str(failing), str(missing)), root.attrib)


def percent(ratio):
    return f"{100 * (ratio - 1):+.1f}%"


def interval(c):
    """Of a share in points, as its line has it."""
    if "lo" not in c:
        return ""
    if c["unit"]:
        return f"{percent(c['lo'])} to {percent(c['hi'])}"
    lo, hi = (100 * ((1 + c["base"]) * c[end] - 1 - c["base"]) for end in ("lo", "hi"))
    return f"{lo:+.1f} to {hi:+.1f} points"


def cause(c, comma):
    return c["by"] + (comma + c["part"] if "part" in c else "")


def unmarked(text):
    """Markdown that stands for itself, as it is read; what is longer than its room ends in dots."""
    return html.unescape(re.sub(r"\\(.)", r"\1", text)).strip()


def hold_markdown(where, said, text):
    lines = text.splitlines()
    expect(f"{where}: Markdown's verdict", lines[0] == f"**habench: {said.worst['verdict']}**. {said.worst['line']}", lines[0])
    each = [unmarked(line[2:]) for line in lines if line.startswith("- ")]
    expect(f"{where}: Markdown's verdict of each record", each == ([f"{said.new(v)}: {v['line']}" for v in said.verdicts] if len(said.verdicts) > 1 else []), each)
    found = Counter()
    for line in lines[1:]:
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == 4 and cells[0].startswith(" **"):
            found[cells[0].strip(" *"), unmarked(cells[1]).removesuffix("...")[:LINE], cells[2].strip(), unmarked(cells[3])] += 1
    want = Counter()
    for c in said.loud:
        line = (said.new(c) + " " + c["line"]).strip()
        want[c["change"], line[:LINE], interval(c), cause(c, ", ")] += 1
    if len(said.loud) <= MARKDOWN_MOST:
        expect(f"{where}: Markdown's changes", found == want, (found - want, want - found))
    else:
        left = f"and {len(said.loud) - MARKDOWN_MOST} more changes"
        expect(f"{where}: Markdown's first changes", not found - want and sum(found.values()) == MARKDOWN_MOST and left in lines, (found - want, left))


class Page(HTMLParser):
    """Of a page: its title, the texts of its verdict, the cells of its table of changes, its plots."""

    def __init__(self, text):
        super().__init__()
        self.open, self.title, self.word, self.tone, self.verdict, self.each, self.changes, self.data = [], "", "", "", [], [], [], ""
        self.feed(text)
        self.plots = json.loads(self.data)

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        if tag == "wbr":
            return
        self.open.append((tag, of.get("id"), of.get("class") or ""))
        if self.within("id", "verdict"):
            if tag == "section":
                self.tone = of["class"]
            elif tag in ("p", "li"):
                (self.verdict if tag == "p" else self.each).append("")
        elif tag == "tr" and self.within("class", "changes") and not self.within("tag", "thead"):
            self.changes.append([])
        elif tag == "td" and self.within("class", "changes"):
            self.changes[-1].append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def within(self, what, value):
        i = ("tag", "id", "class").index(what)
        return any(value in (o[i] or "").split() for o in self.open)

    def handle_data(self, text):
        if self.within("tag", "title"):
            self.title += text
        elif self.within("id", "data"):
            self.data += text
        elif self.within("id", "verdict"):
            if self.within("class", "word"):
                self.word += text
            elif self.within("tag", "p"):
                self.verdict[-1] += text
            elif self.within("tag", "li"):
                self.each[-1] += text
        elif self.within("class", "changes") and self.within("tag", "td"):
            self.changes[-1][-1] += text


def hold_page(where, said, page):
    """Its changes: word, line with case and figure, cause, interval; in its plot word and ratio of each that has one."""
    tone = {10: "bad", 30: "bad", 20: "warn", 40: "warn", 0: "good"}
    worst = said.worst
    if said.speeds and not worst["exit"]:  # of two machines none is right
        expect(f"{where}: the page says who is faster", page.word == "side by side" and "times as fast as A" in page.verdict[0] and page.tone == "verdict plain", page.verdict)
    else:
        expect(f"{where}: the page's verdict", (page.word, page.verdict[0], page.tone) == (worst["verdict"], worst["line"], f"verdict {tone[worst['exit']]}"),
               (page.word, page.verdict, page.tone))
        expect(f"{where}: the page's title", page.title.startswith(worst["verdict"] + ": "), page.title)
    each = [" ".join(text.split()) for text in page.each]
    expect(f"{where}: the page's verdict of each record", each == ([f"{said.new(v)}: {v['line']}" for v in said.verdicts] if len(said.verdicts) > 1 else []), each)
    found = Counter((c[0], " ".join(c[1].split()), " ".join(c[2].split()), c[3]) for c in page.changes)
    want = Counter((c["change"], " ".join((said.new(c) + " " + c["line"]).split()), cause(c, " "), interval(c)) for c in said.loud)
    expect(f"{where}: the page's changes", found == want, (found - want, want - found))
    order = [EXITS.index(WORDS.get(c[0], 0)) for c in page.changes]
    expect(f"{where}: the worst first", order == sorted(order), order)
    plot = next((p["choices"][0] for p in page.plots if p["name"] == "forest"), None)
    drawn = Counter()
    for row in plot["rows"] if plot else ():
        of = dict(zip([column[0] for column in plot["columns"]], row))
        drawn[of["kind"], of["by"], of["y"], of["name"].split(" ")[1]] += 1
    want = Counter((c["change"], c["by"], float(f"{c['ratio']:.6g}"), c["figure"]) for c in said.loud if "ratio" in c)
    left = sum(want.values()) - PLOT_MOST
    expect(f"{where}: the page's plot of changes", not drawn - want and sum((want - drawn).values()) == max(left, 0), (drawn - want, want - drawn))
    if said.night:
        hold_history(where, said, page)


def hold_history(where, said, page):
    """The marks of the newest night, in the histories of figures that are followed."""
    marks = Counter()
    for plot in page.plots:
        for figure in plot["choices"] if "nights" in plot else ():
            marks.update((figure["title"], len(plot["nights"]) - 1 - int(night), word) for night, word in figure.get("marks", {}).items())
    want = Counter((c["figure"], 0, c["change"]) for c in said.loud if "figure" in c and c["case_id"] != "machine")
    expect(f"{where}: the page's marks in its histories", marks == want, (marks - want, want - marks))
    count_of["marks"] += sum(want.values())


def test_round(program, folder, seed, turn, pages):
    compared, reported = draw(folder, random.Random(seed), turn)
    where = f"seed {seed}"
    code, text, err = run(program, "compare", "--format", "json", "--junit", f"{folder}/junit.xml", *compared)
    expect(f"{where}: nothing on stderr", not err and code in EXITS, (code, err))
    said = Said(text, reported != compared)
    hold_json(where, said, code)
    table = run(program, "compare", *compared)
    expect(f"{where}: the table's exit code", table[0] == code, table)
    hold_table(where, said, table[1])
    hold_junit(where, said, f"{folder}/junit.xml")
    code, text, err = run(program, "report", "--format", "md", *reported)
    expect(f"{where}: Markdown is made", code == 0 and not err, (code, err))
    hold_markdown(where, said, text)
    if pages:
        code, _, err = run(program, "report", "-o", f"{folder}/page.html", *reported)
        expect(f"{where}: a page is made", code == 0 and not err, (code, err))
        with open(f"{folder}/page.html", encoding="utf-8") as file:
            hold_page(where, said, Page(file.read()))
    return said


ALONE = {"right": "pass pass", "suspect": "pass suspect waived", "not judged": "pass suspect error", "wrong": "error fail pass", "nothing passed": "waived"}


def test_alone(program, folder, pages):
    """A record alone has the verdict of its own cases."""
    for word, verdicts in ALONE.items():
        path = f"{folder}/{word}"
        record(path, random.Random(1), {f"v{i}:": (plain, v, 0) for i, v in enumerate(verdicts.split())}, 1)
        text = run(program, "report", "--format", "md", path)[1]
        expect(f"{word}: Markdown of a record", text.startswith(f"**habench: {word}**"), text)
        if pages:
            run(program, "report", "-o", f"{path}.html", path)
            with open(f"{path}.html", encoding="utf-8") as file:
                expect(f"{word}: the page of a record", (shown := Page(file.read()).word) == word, shown)


def main(program, scope="all", rounds="8", seed="1000"):
    pages = scope != "small" and os.path.exists(f"{LIBRARY}/vega.js")
    if scope != "small" and not pages:
        print("SKIP: build/report is not there, so no page is held against the others: scripts/setup.sh --report")
    words, causes, codes = set(), set(), set()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(3 if scope == "small" else int(rounds)):
            said = test_round(program, f"{folder}/{i}", int(seed) + i, i, pages)
            words |= {c["change"] for c in said.changes}
            causes |= {c["by"] for c in said.changes}
            codes.add(said.worst["exit"])
        test_alone(program, f"{folder}/alone", pages)
    if int(rounds) >= 8 and scope != "small":
        expect("each word was met", words == set(WORDS), set(WORDS) - words)
        expect("each cause", causes == {"", *CAUSES}, causes)
        expect("each exit code", codes == set(EXITS), codes)
        expect("a mark in a history", count_of["marks"] or not pages)
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
