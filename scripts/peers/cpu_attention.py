#!/usr/bin/env python3
"""Attention of other libraries on the CPU beside habench's, in turns: one query token, 32/8 heads of 128.

    scripts/peers/cpu_attention.py [--peers torch,ggml] [--ggml FOLDER] [--dtype f16] [--ctx 32768] [-o DIR]

For each type, context and number of threads every peer is a process of its own, with keys and values of its own that
lie there so many times over that no cache holds them, and habench is one (build/release/in_turns). A round is habench,
a peer, habench, the next peer and so on; what a peer took is divided by the mean of habench's turns before and after
it, so that what else the machine does meanwhile slows both. `times ours` is the median of these ratios over the rounds
and its interval (95%, of ranks); above 1 habench is faster.

A peer attends to few keys first, then to those that are timed: what is not what numpy computes in binary64 is `wrong`,
and has no time. habench is held against its own bound on what is timed. `rel error` is that of what is timed, relative
L2; `computes` is what the library says of itself, its types or its kernels.

    pip install -r scripts/peers/requirements.txt

gets the packages; a peer that is not there is a line. ggml is built with cmake into build/peers, of the sources of ggml
or llama.cpp in the folder behind --ggml. -o DIR: peers.csv, peers.txt as printed, and peers.md, a table of the ratios.

Exit status, as habench's: 10 a peer or habench is wrong; 40 habench does not run; 77 no peer is here."""
import argparse
import csv
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
DTYPES = ["f32", "bf16", "f16"]
POINT = "cpu_kernels:kernel=attend,layout={layout},dtype={dtype},ctx={ctx},heads=32/8,head_dim=128,threads={threads}"
WRONG, ENVIRONMENT, WAIVED = 10, 40, 77
REST_S = 0.02  # between turns: by then the threads of the last one sleep

# module: what worker.py imports; needs: packages by the names that they are imported by, and that pip knows
Peer = namedtuple("Peer", "module needs")
PEERS = {
    "torch": Peer("cpu.with_torch", {"torch": "torch"}),
    "onnxruntime": Peer("cpu.with_onnxruntime", {"onnxruntime": "onnxruntime", "onnx": "onnx"}),
    "openvino": Peer("cpu.with_openvino", {"openvino": "openvino"}),
    "jax": Peer("cpu.with_jax", {"jax": "jax"}),
    "ggml": Peer("cpu.with_ggml", {}),
}


# ---- statistics ------------------------------------------------------------------------------------------------------

def interval(x, share=0.95):
    """The median, and two of the values, between which the median of all that could have been drawn lies with this
    probability at least; of fewer than six values the least and the most."""
    x, n, rank, below = sorted(x), len(x), 0, 0.0
    for k in range(n // 2):
        below += math.comb(n, k) / 2 ** n  # that at most k values are below that median
        if 2 * below > 1 - share:
            break
        rank = k
    return statistics.median(x), x[rank], x[n - 1 - rank]


# ---- processes -------------------------------------------------------------------------------------------------------

class Lost(Exception):
    """What there is no answer from: what it said last."""


class Process:
    """Lines of JSON as answers to lines."""

    def __init__(self, *command):
        self.log = tempfile.TemporaryFile("w+")
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.log, text=True)

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            status = self.child.wait()
            self.log.seek(0)
            said = self.log.read().strip().split("\n")[-1]
            raise Lost(f"exit status {status}" + (f": {said}" if said else ""))
        said = json.loads(line)
        if "problem" in said:
            raise Lost(said["problem"])
        return said

    def ask(self, line):
        try:
            print(line, file=self.child.stdin, flush=True)
        except BrokenPipeError:
            pass  # answer says why
        return self.answer()

    def end(self):
        self.child.kill()
        self.child.wait()


class Worker:
    """The process of a peer, which goes on from point to point, and begins again where it was lost."""

    def __init__(self, module):
        self.command = sys.executable, os.path.join(HERE, "cpu", "worker.py"), module
        self.process = None

    def ask(self, **what):
        if not self.process or self.process.child.poll() is not None:
            self.process = Process(*self.command)
        return self.process.ask(json.dumps(what))

    def end(self):
        if self.process:
            self.process.end()


# ---- a point ---------------------------------------------------------------------------------------------------------

def turn(time_calls, calls):
    """Milliseconds of a call: the median of some. Where they are short one before them wakes the threads."""
    time.sleep(REST_S)
    ns = time_calls(calls + 1)[1:] if calls > 1 else time_calls(1)
    return statistics.median(ns) / 1e6


def calls_of(time_calls, least_ms):
    """how many take so long, at most 16"""
    return max(1, min(16, math.ceil(least_ms / min(turn(time_calls, 1), turn(time_calls, 1)))))


def run_rounds(ours, theirs, rounds, least_ms):
    """theirs: {name: time_calls}. {name: [(ms of ours around it, its ms)]}; in place of the list why it was lost"""
    taken, calls = {name: [] for name in theirs}, {}

    def guard(name, what):
        try:
            return what()
        except Lost as why:
            taken[name] = str(why)

    own = calls_of(ours, least_ms)
    for name in theirs:
        calls[name] = guard(name, lambda: calls_of(theirs[name], least_ms))
    for _ in range(rounds):
        before = turn(ours, own)
        for name in theirs:
            if isinstance(taken[name], str):
                continue
            ms = guard(name, lambda: turn(theirs[name], calls[name]))
            after = turn(ours, own)
            if ms is not None:
                taken[name].append(((before + after) / 2, ms))
            before = after
    return taken


def figures(pairs):
    """of a row, from what run_rounds took"""
    middle, lo, hi = interval([theirs / ours for ours, theirs in pairs])
    ours, theirs = (statistics.median(x) for x in zip(*pairs))
    return {"peer_ms": theirs, "ours_ms": ours, "times_ours": middle, "times_ours_lo": lo, "times_ours_hi": hi,
            "rounds": len(pairs)}


def open_peer(name, worker, asked):
    """a row for each way that it has; one that says why where it has none"""
    try:
        said = worker.ask(**asked)
    except Lost as why:
        return [{"peer": name, "verdict": str(why)}]
    lacks = [dict(peer=name, way=way, version=said["version"], verdict=why) for way, why in said["lacks"].items()]
    if not said["ways"] and not lacks:
        return [{"peer": name, "version": said["version"], "verdict": "has none"}]
    return [dict(peer=name, way=way, version=said["version"], computes=what["computes"], error=what["error"],
                 error_few=what["error_few"], verdict="right" if what["right"] else "wrong")
            for way, what in said["ways"].items()] + lacks


def run_point(args, workers, dtype, ctx, threads):
    """the rows of a point; Lost: habench"""
    case = POINT.format(layout=args.layout, dtype=dtype, ctx=ctx, threads=threads)
    asked = {"dtype": dtype, "ctx": ctx, "threads": threads, "rotate": args.rotate, "ggml": args.library}
    ours = Process(args.program, case)
    try:
        says = ours.answer()
        rows = [row for name, worker in workers.items() for row in open_peer(name, worker, asked)]

        def calls_to(row):
            return lambda calls: workers[row["peer"]].ask(way=row["way"], calls=calls)["ns"]

        right = {i: calls_to(row) for i, row in enumerate(rows) if row["verdict"] == "right"}
        for i, pairs in run_rounds(lambda calls: ours.ask(calls)["ns"], right, args.rounds, args.turn_ms).items():
            rows[i].update({"verdict": pairs} if isinstance(pairs, str) else figures(pairs))
    finally:
        ours.end()
    head = {"dtype": dtype, "ctx": ctx, "threads": threads, "ours": case, "ours_version": says["version"],
            "ours_isa": says["isa"], "ours_plan": says.get("plan", ""), "ours_err_over_bound": says["err_over_bound"], "cpu": cpu_name()}
    return [dict(head, **row) for row in rows]


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


# ---- output ----------------------------------------------------------------------------------------------------------

COLUMNS = ["dtype", "ctx", "threads", "peer", "way", "version", "computes", "verdict", "error", "error_few", "peer_ms",
           "ours_ms", "times_ours", "times_ours_lo", "times_ours_hi", "rounds", "ours", "ours_version", "ours_isa", "ours_plan",
           "ours_err_over_bound", "cpu"]
POINT_TEXT = "{:5} {:>7} {:>7}  {:18} "
FIGURES_TEXT = "{:>8} {:>8} {:>10} {:>15} {:>9}  {}"
HEADING = POINT_TEXT.format("dtype", "ctx", "threads", "peer") + FIGURES_TEXT.format(
    "ms", "ours ms", "times ours", "interval", "rel error", "computes")


def text_of(row):
    at = POINT_TEXT.format(row["dtype"], row["ctx"], row["threads"], f"{row['peer']} {row.get('way', '')}")
    if "times_ours" in row:
        span = f"{row['times_ours_lo']:.2f} to {row['times_ours_hi']:.2f}"
        return at + FIGURES_TEXT.format(f"{row['peer_ms']:.2f}", f"{row['ours_ms']:.2f}", f"{row['times_ours']:.2f}",
                                        span, f"{row['error']:.1e}", row["computes"])
    if row["verdict"] == "wrong":
        return at + f"wrong: relative error {row['error_few']:.2g} over few keys, {row['error']:.2g} over all"
    return at + row["verdict"]


def markdown(rows):
    """a line for each point, a column for each peer and way: times ours, and the interval"""
    def cell(row):
        if row.get("times_ours"):
            return "{:.2f}, {:.2f} to {:.2f}".format(*(float(row["times_ours" + end]) for end in ("", "_lo", "_hi")))
        return row["verdict"]

    columns = list(dict.fromkeys((row["peer"], row["way"]) for row in rows if row.get("way")))
    points = list(dict.fromkeys((row["dtype"], row["ctx"], row["threads"]) for row in rows))
    lines = [["type", "keys", "threads", "habench, ms", *(f"{peer} {way}" for peer, way in columns)]]
    lines.append(["---"] * len(lines[0]))
    for point in points:
        here = [row for row in rows if (row["dtype"], row["ctx"], row["threads"]) == point]
        ours = [float(row["ours_ms"]) for row in here if row.get("ours_ms")]
        cells = [[cell(row) for row in here if row["peer"] == peer and row.get("way") in (way, None, "")]
                 for peer, way in columns]
        lines.append([*map(str, point), f"{statistics.median(ours):.2f}" if ours else "",
                      *(found[0] if found else "" for found in cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


class Record:
    """stdout, and the files of the folder"""

    def __init__(self, folder):
        self.text = self.csv = None
        self.folder, self.rows = folder, []
        if folder:
            os.makedirs(folder, exist_ok=True)
            self.text = open(os.path.join(folder, "peers.txt"), "w")
            self.file = open(os.path.join(folder, "peers.csv"), "w", newline="")
            self.csv = csv.DictWriter(self.file, COLUMNS)
            self.csv.writeheader()

    def say(self, line):
        for file in filter(None, (sys.stdout, self.text)):
            print(line.rstrip(), file=file, flush=True)

    def row(self, row):
        self.say(text_of(row))
        self.rows.append(row)
        if self.csv:
            self.csv.writerow(row)
            self.file.flush()
            with open(os.path.join(self.folder, "peers.md"), "w") as file:
                file.write(markdown(self.rows))


# ---- the command -----------------------------------------------------------------------------------------------------

def build_ggml(folder):
    """the library, of the sources in that folder"""
    to, jobs = os.path.join(TREE, "build", "peers", "ggml"), str(len(os.sched_getaffinity(0)))
    for command in (["cmake", "-S", os.path.join(HERE, "ggml"), "-B", to, f"-DGGML={os.path.abspath(folder)}"],
                    ["cmake", "--build", to, "--target", "peer", "-j", jobs]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Lost(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-2000:]}")
    return os.path.join(to, "libpeer.so")


def missing(name, ggml):
    """a line on how to get what the peer lacks, or None"""
    if name == "ggml":
        return None if ggml else "ggml: not here; git clone https://github.com/ggml-org/ggml, and --ggml ggml"
    lacks = [pip for module, pip in PEERS[name].needs.items() if not importlib.util.find_spec(module)]
    return f"{name}: not here; pip install {' '.join(lacks)}" if lacks else None


def rotate_bytes():
    """what habench goes through before it comes back to a key: four times the last cache, and 256 MiB"""
    try:
        cache = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (OSError, ValueError):
        cache = 0
    return max(256 << 20, 4 * cache)


def words_of(kind, known=None):
    """words joined by commas"""
    def read(text):
        values = [kind(word) for word in text.split(",")]
        for value in values:
            if known and value not in known:
                raise argparse.ArgumentTypeError(f"'{value}' is none of {', '.join(known)}")
        return values
    return read


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="DIR", dest="folder", help="peers.csv, peers.txt and peers.md go there")
    parser.add_argument("--peers", type=words_of(str, PEERS), default=list(PEERS), help=f"default: {','.join(PEERS)}")
    parser.add_argument("--ggml", metavar="FOLDER", help="the sources of ggml or llama.cpp")
    parser.add_argument("--dtype", type=words_of(str, DTYPES), default=DTYPES, help=f"default: {','.join(DTYPES)}")
    parser.add_argument("--ctx", type=words_of(int), default=[32768, 131072], help="keys; default: 32768,131072")
    parser.add_argument("--threads", type=words_of(int), default=sorted({1, len(os.sched_getaffinity(0))}),
                        help="default: one, and as many as there are cores")
    parser.add_argument("--layout", choices=["packed", "natural"], default="packed", help="of habench's keys")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn-ms", type=float, default=40, help="what a turn takes, in at most 16 calls; default: 40")
    parser.add_argument("--program", default=os.path.join(TREE, "build", "release", "in_turns"),
                        help="of habench; default: build/release/in_turns")
    return parser.parse_args(words)


def run(args, record, workers):
    """every point; the exit status"""
    wrong = False
    for dtype in args.dtype:
        for ctx in args.ctx:
            for threads in args.threads:
                for row in run_point(args, workers, dtype, ctx, threads):
                    record.row(row)
                    wrong = wrong or row["verdict"] == "wrong"
    return WRONG if wrong else 0


def main(words=None):
    args = parse(words)
    record = Record(args.folder)
    absent = {name: missing(name, args.ggml) for name in args.peers}
    for line in filter(None, absent.values()):
        record.say(line)
    workers = {name: Worker(PEERS[name].module) for name in args.peers if not absent[name]}
    if not workers:
        return WAIVED
    args.rotate, args.library = rotate_bytes(), None
    try:
        args.library = build_ggml(args.ggml) if "ggml" in workers else None
        record.say(f"{cpu_name()}; one query token, 32/8 heads of 128; {args.rounds} rounds")
        record.say(HEADING)
        return run(args, record, workers)
    except (Lost, OSError) as why:
        record.say(str(why))
        return WRONG if str(why).startswith(f"exit status {WRONG}") else ENVIRONMENT
    finally:
        for worker in workers.values():
            worker.end()


if __name__ == "__main__":
    sys.exit(main())
