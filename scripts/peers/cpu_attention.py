#!/usr/bin/env python3
"""Attention of other libraries on the CPU beside habench's, in turns: one query token, 32/8 heads of 128, the same threads.

    scripts/peers/cpu_attention.py [--peers torch,ggml] [--ggml FOLDER] [--dtype f16] [--ctx 32768] [--threads 1] -o DIR

For each type, context and number of threads every peer is a process of its own, with keys and values of its own that lie there so
many times over that no cache holds them, and habench is one (build/release/in_turns). A round is habench, a peer, habench, the next
peer and so on; what a peer took is divided by the mean of habench's two turns around it, so that what else the machine does meanwhile
slows both. `times ours` is the median over the rounds of these ratios, with its interval; above 1 habench is faster.

Each first attends to few keys, and then to those that are timed: what is not attention as numpy computes it in binary64 is `wrong`, and
has no time. habench is held against its own bound. Packages: pip install -r scripts/peers/requirements.txt; a peer that is not
there is a line and nothing else. ggml is built from the folder that --ggml names, of ggml or llama.cpp, with cmake, into build/peers.

-o DIR: peers.csv, and peers.txt as printed. Exit status 1: habench failed its check; 10: a peer is wrong; 77: no peer is there."""
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
import time
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
DTYPES = ["f32", "bf16", "f16"]
POINT = "cpu_kernels:kernel=attend,layout={layout},dtype={dtype},ctx={ctx},heads=32/8,head_dim=128,threads={threads}"
WRONG, MISSING = 10, 77

# module: of scripts/peers/cpu; needs: what has to be importable, by the name that pip knows
Peer = namedtuple("Peer", "module needs")
PEERS = {
    "torch": Peer("cpu.with_torch", {"torch": "torch"}),
    "onnxruntime": Peer("cpu.with_onnxruntime", {"onnxruntime": "onnxruntime", "onnx": "onnx"}),
    "openvino": Peer("cpu.with_openvino", {"openvino": "openvino"}),
    "jax": Peer("cpu.with_jax", {"jax": "jax"}),
    "ggml": Peer("cpu.with_ggml", {}),
}
COLUMNS = ["dtype", "ctx", "threads", "peer", "version", "computes", "error", "error_few", "verdict", "peer_ms", "ours_ms",
           "times_ours", "times_ours_lo", "times_ours_hi", "rounds", "ours_version", "ours_isa", "layout", "cpu"]


# ---- statistics ---------------------------------------------------------------------------------------------------

def interval(x, share=0.95):
    """Median, and two of the values between which the median of what they are drawn from lies with that probability at least; of too
    few values the least and the most."""
    x, n, below = sorted(x), len(x), 0.0
    rank = 0
    for k in range(n // 2):
        below += math.comb(n, k) / 2 ** n
        if 2 * below > 1 - share:
            break
        rank = k
    return statistics.median(x), x[rank], x[n - 1 - rank]


def ratios(ours, theirs):
    """ours: [turns + 1], theirs: [turns], each between two of ours"""
    return [t / ((a + b) / 2) for t, a, b in zip(theirs, ours, ours[1:])]


# ---- processes ----------------------------------------------------------------------------------------------------

class Lost(Exception):
    """A process has no answer: what it said last."""


class Process:
    def __init__(self, *command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            said = self.child.communicate()[1].strip().split("\n")[-1]
            raise Lost(said or f"ended with status {self.child.returncode}")
        said = json.loads(line)
        if "problem" in said:
            raise Lost(said["problem"])
        return said

    def ask(self, line):
        try:
            print(line, file=self.child.stdin, flush=True)
        except BrokenPipeError:
            pass
        return self.answer()

    def end(self):
        self.child.kill()
        self.child.wait()


class Ours:
    """habench's side of a point."""

    def __init__(self, args, dtype, ctx, threads):
        self.process = Process(args.program, POINT.format(layout=args.layout, dtype=dtype, ctx=ctx, threads=threads))
        self.says = self.process.answer()

    def time(self, calls):
        return self.process.ask(calls)["ns"]

    def end(self):
        self.process.end()


class Theirs:
    """A peer, for one point after the other."""

    def __init__(self, peer):
        self.process = Process(sys.executable, os.path.join(HERE, "cpu", "worker.py"), peer.module)

    def open(self, **asked):
        return self.process.ask(json.dumps(asked))

    def time(self, way, calls):
        return self.process.ask(json.dumps({"way": way, "calls": calls}))["ns"]


# ---- a point ------------------------------------------------------------------------------------------------------

def turn(time_calls, calls):
    """Milliseconds of a call: the median of some, behind one that wakes the threads. A moment later those sleep again."""
    ns = time_calls(calls + 1)[1:]
    time.sleep(0.02)
    return statistics.median(ns) / 1e6


def calls_of(time_calls, least_ms):
    """how many calls take so long, at most 16"""
    ms = turn(time_calls, 1)
    return max(1, min(16, math.ceil(least_ms / ms)))


def run_rounds(ours, ways, rounds, least_ms):
    """ways: {name: time_calls}; {name: (ms of ours [rounds], of theirs [rounds], ratios)}"""
    own = calls_of(ours, least_ms)
    calls = {name: calls_of(way, least_ms) for name, way in ways.items()}
    taken = {name: ([], [], []) for name in ways}
    for _ in range(rounds):
        before = turn(ours, own)
        for name, way in ways.items():
            theirs = turn(way, calls[name])
            after = turn(ours, own)
            for to, x in zip(taken[name], ((before + after) / 2, theirs, ratios([before, after], [theirs])[0])):
                to.append(x)
            before = after
    return taken


def open_peers(peers, asked):
    """{peer: (its process, what it said)}, [(peer, why it has no time)]"""
    opened, out = {}, []
    for name, process in peers.items():
        try:
            opened[name] = process, process.open(**asked)
        except Lost as why:
            out.append((name, str(why)))
    return opened, out


def run_point(args, peers, dtype, ctx, threads):
    """rows of the table"""
    asked = {"dtype": dtype, "ctx": ctx, "threads": threads, "rotate": args.rotate, "ggml": args.library}
    ours = Ours(args, dtype, ctx, threads)
    opened, lost = open_peers(peers, asked)
    head = {"dtype": dtype, "ctx": ctx, "threads": threads, "ours_version": ours.says["version"], "ours_isa": ours.says["isa"],
            "layout": args.layout, "cpu": cpu_name()}
    rows = [dict(head, peer=name, verdict=why) for name, why in lost]
    ways = {}
    for name, (process, says) in opened.items():
        if not says["ways"]:
            rows.append(dict(head, peer=name, version=says["version"], verdict=f"has no {dtype}"))
        for way, what in says["ways"].items():
            row = dict(head, peer=f"{name} {way}", version=says["version"], computes=what["computes"], error=what["error"],
                       error_few=what["error_few"], verdict="" if what["right"] else "wrong")
            rows.append(row)
            if what["right"]:
                ways[row["peer"]] = lambda calls, process=process, way=way: process.time(way, calls)
    for name, (own, theirs, ratio) in run_rounds(ours.time, ways, args.rounds, args.turn_ms).items():
        row = next(row for row in rows if row["peer"] == name)
        middle, lo, hi = interval(ratio)
        row.update(peer_ms=statistics.median(theirs), ours_ms=statistics.median(own), times_ours=middle, times_ours_lo=lo,
                   times_ours_hi=hi, rounds=len(ratio))
    ours.end()
    return rows


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


# ---- output -------------------------------------------------------------------------------------------------------

HEADING = f"{'dtype':5} {'ctx':>7} {'thr':>3} {'peer':17} {'ms':>8} {'ours ms':>8} {'times ours':>10} {'interval':>13} {'rel error':>9}  computes"


def text_of(row):
    at = f"{row['dtype']:5} {row['ctx']:7} {row['threads']:3} {row['peer']:17} "
    if "times_ours" not in row:
        off = f": its relative error is {row['error_few']:.2g} of few keys, {row['error']:.2g} of all" if "error" in row else ""
        return f"{at}{row['verdict']}{off}"
    span = f"{row['times_ours_lo']:.2f} to {row['times_ours_hi']:.2f}"
    return (f"{at}{row['peer_ms']:8.2f} {row['ours_ms']:8.2f} {row['times_ours']:10.2f} {span:>13} {row['error']:9.1e}  "
            f"{row['computes']}")


class Record:
    """stdout, and both files of the folder"""

    def __init__(self, folder):
        self.files = []
        if folder:
            os.makedirs(folder, exist_ok=True)
            self.files = [open(os.path.join(folder, name), "w", newline="") for name in ("peers.txt", "peers.csv")]
            self.csv = csv.DictWriter(self.files[1], COLUMNS)
            self.csv.writeheader()

    def say(self, line):
        for file in [sys.stdout, *self.files[:1]]:
            print(line, file=file, flush=True)

    def row(self, row):
        self.say(text_of(row))
        if self.files:
            self.csv.writerow(row)
            self.files[1].flush()


# ---- the command --------------------------------------------------------------------------------------------------

def build_ggml(folder):
    """the library, of the sources in that folder"""
    to, jobs = os.path.join(TREE, "build", "peers", "ggml"), str(len(os.sched_getaffinity(0)))
    for command in (["cmake", "-S", os.path.join(HERE, "ggml"), "-B", to, f"-DGGML={os.path.abspath(folder)}"],
                    ["cmake", "--build", to, "--target", "peer", "-j", jobs]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Lost(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-2000:]}")
    return os.path.join(to, "libpeer.so")


def missing(name, peer, args):
    """how to get what it lacks, or None"""
    if name == "ggml" and not args.ggml:
        return "ggml: not here; git clone https://github.com/ggml-org/ggml, and --ggml FOLDER"
    lacks = [pip for module, pip in peer.needs.items() if not importlib.util.find_spec(module)]
    return f"{name}: not here; pip install {' '.join(lacks)}" if lacks else None


def rotate_bytes():
    """what habench goes through before it comes back to a key: 256 MiB, and four times the last cache"""
    try:
        cache = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (OSError, ValueError):
        cache = 0
    return max(256 << 20, 4 * cache)


def parse(words):
    def some(kind, known=None):
        def read(text):
            values = [kind(word) for word in text.split(",")]
            strange = [value for value in values if known and value not in known]
            if strange:
                raise argparse.ArgumentTypeError(f"'{strange[0]}' is none of {', '.join(known)}")
            return values
        return read

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="DIR", dest="folder", help="peers.csv and peers.txt go there")
    parser.add_argument("--peers", type=some(str, PEERS), default=list(PEERS), help="default: all")
    parser.add_argument("--ggml", metavar="FOLDER", help="sources of ggml or llama.cpp")
    parser.add_argument("--dtype", type=some(str, DTYPES), default=DTYPES)
    parser.add_argument("--ctx", type=some(int), default=[32768, 131072])
    parser.add_argument("--threads", type=some(int), default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--layout", choices=["packed", "natural"], default="packed", help="of habench's keys")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn-ms", type=float, default=40, help="what a turn takes at least, if 16 calls take so long")
    parser.add_argument("--program", default=os.path.join(TREE, "build", "release", "in_turns"))
    return parser.parse_args(words)


def main(words=None):
    args = parse(words)
    args.rotate = rotate_bytes()
    try:
        args.library = build_ggml(args.ggml) if args.ggml and "ggml" in args.peers else None
    except (Lost, OSError) as why:
        sys.exit(f"--ggml: {why}")
    record = Record(args.folder)
    absent = {name: missing(name, PEERS[name], args) for name in args.peers}
    for line in filter(None, absent.values()):
        record.say(line)
    peers = {name: Theirs(PEERS[name]) for name in args.peers if not absent[name]}
    if not peers:
        return MISSING
    record.say(f"{cpu_name()}; one query token, 32/8 heads of 128; {args.rounds} rounds")
    record.say(HEADING)
    wrong = False
    for dtype in args.dtype:
        for ctx in args.ctx:
            for threads in args.threads:
                for row in run_point(args, peers, dtype, ctx, threads):
                    record.row(row)
                    wrong = wrong or row["verdict"] == "wrong"
    return WRONG if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
