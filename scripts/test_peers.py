#!/usr/bin/env python3
"""test_peers.py IN_TURNS: scripts/peers/cpu_attention.py beside peers that are written here, right, wrong, lost.
No library is asked for."""
import contextlib
import csv
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "peers")]
import cpu_attention as peers  # noqa: E402
from cpu import worker  # noqa: E402

count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:900]}")


# ---- statistics ------------------------------------------------------------------------------------------------------

def test_interval():
    # as tables of ranks have it
    for n, rank in ((1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (15, 3), (16, 3), (25, 7), (100, 39)):
        x = [float(i) for i in range(n)]
        random.Random(n).shuffle(x)
        expect(f"interval of {n}", peers.interval(x) == (statistics.median(x), rank, n - 1 - rank), peers.interval(x))
    draw, within = random.Random(1), 0
    for _ in range(2000):
        _, lo, hi = peers.interval([draw.expovariate(1) for _ in range(15)])
        within += lo <= 0.6931471805599453 <= hi
    expect("the median of an exponential distribution is in 96.5% of intervals", 1900 <= within <= 1955, within)


def test_rounds():
    """A host that gets slower all the time: the ratios are those of a quiet one."""
    clock, peers.REST_S = [1.0], 0

    def takes(ms):
        def time_calls(calls):
            clock[0] += 0.01
            return [ms * 1e6 * clock[0]] * calls
        return time_calls

    def dies(calls):
        clock[0] += 0.01
        if clock[0] > 1.2:
            raise peers.Lost("gone")
        return [1e6] * calls

    taken = peers.run_rounds(takes(2), {"slow": takes(6), "fast": takes(1), "dies": dies}, 9, 1)
    slow, fast = peers.figures(taken["slow"]), peers.figures(taken["fast"])
    expect("rounds", slow["rounds"] == 9 and fast["rounds"] == 9, taken)
    expect("3 times ours", all(abs(slow[x] - 3) < 1e-3 for x in ("times_ours", "times_ours_lo", "times_ours_hi")), slow)
    expect("half of ours", abs(fast["times_ours"] - 0.5) < 1e-3 and fast["times_ours_lo"] <= fast["times_ours"], fast)
    expect("ms are not of a quiet host", slow["peer_ms"] > 6.5 and slow["ours_ms"] > 2.2, slow)
    expect("a peer that is lost is not the others' end", taken["dies"] == "gone", taken["dies"])


def test_turn():
    asked = []

    def time_calls(calls):
        asked.append(calls)
        return [9e6] + [1e6] * (calls - 1) if calls > 1 else [2e6]

    expect("the first call of some only wakes", peers.turn(time_calls, 3) == 1 and asked == [4], asked)
    expect("one call is one call", peers.turn(time_calls, 1) == 2 and asked[1:] == [1], asked)
    expect("calls of a turn", peers.calls_of(time_calls, 5) == 3 and peers.calls_of(time_calls, 1) == 1
           and peers.calls_of(time_calls, 1000) == 16)


# ---- what the peers' processes do ------------------------------------------------------------------------------------

PARTS = """
import os
import numpy as np
from cpu.worker import Way, exact
def version(asked):
    return "0.1"
def of(sets, dtype, call):
    return Way(dtype, [call(s) for s in sets], lambda out: out)
"""
MODULES = {
    "fake_right": "def ways(sets, dtype, threads, asked):\n"
                  "    return {'gqa': of(sets, dtype, lambda s: lambda: exact(*s, dtype)),\n"
                  "            'off': of(sets, dtype, lambda s: lambda: exact(*s, dtype) * 1.5)}",
    "fake_short": "def ways(sets, dtype, threads, asked):\n"
                  "    return {'': of(sets, dtype, lambda s: lambda: exact(s[0], s[1][:, :-1], s[2][:, :-1], dtype))}",
    "fake_large": "def ways(sets, dtype, threads, asked):\n"  # right of few keys alone
                  "    n = min(sets[0][1].shape[1], 100)\n"
                  "    return {'': of(sets, dtype, lambda s: lambda: exact(s[0], s[1][:, :n], s[2][:, :n], dtype))}",
    "fake_nan": "def ways(sets, dtype, threads, asked):\n"
                "    return {'': of(sets, dtype, lambda s: lambda: np.full((32, 128), np.nan))}",
    "fake_shape": "def ways(sets, dtype, threads, asked):\n"
                  "    return {'': of(sets, dtype, lambda s: lambda: exact(*s, dtype)[:1])}",
    "fake_none": "def ways(sets, dtype, threads, asked):\n    return {}",
    "fake_part": "def ways(sets, dtype, threads, asked):\n"
                 "    return {'here': of(sets, dtype, lambda s: lambda: exact(*s, dtype)), 'paged': 'no such cache'}",
    "fake_raises": "def ways(sets, dtype, threads, asked):\n    raise ValueError('no such kernel\\nmore')",
    "fake_ends": "def ways(sets, dtype, threads, asked):\n    print('noise on stdout')\n    os._exit(3)",
    "fake_ends_late": "def ways(sets, dtype, threads, asked):\n"
                      "    left = iter(range(4))\n"
                      "    return {'': of(sets, dtype, lambda s:\n"
                      "            lambda: exact(*s, dtype) if next(left, None) is not None else os._exit(4))}",
    "fake_import": "import no_such_module_at_all",
}


def run(folder, program, *words):
    """exit status, what was printed, rows by peer and way"""
    out = os.path.join(folder, "out")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = peers.main(["--program", program, "--ctx", "300", "--threads", "1", "--rounds", "3", "--turn-ms", "0",
                           "-o", out, *words])
    with open(os.path.join(out, "peers.csv"), newline="") as file:
        rows = {f"{row['peer']} {row['way']}".strip(): row for row in csv.DictReader(file)}
    with open(os.path.join(out, "peers.txt")) as file:
        expect("peers.txt is what was printed", file.read() == said.getvalue(), said.getvalue())
    return code, said.getvalue(), rows


def test_peers(folder, program):
    for name, text in MODULES.items():
        with open(os.path.join(folder, name + ".py"), "w") as file:
            file.write(PARTS + text + "\n")
    os.environ["PYTHONPATH"] = folder
    peers.PEERS.update({name: peers.Peer(name, {}) for name in MODULES})
    peers.PEERS["absent"] = peers.Peer("cpu.with_torch", {"no_such_module_at_all": "no-such-package", "json": "json"})
    peers.rotate_bytes = lambda: 0
    for dtype in peers.DTYPES:
        code, said, rows = run(folder, program, "--dtype", dtype, "--peers", "absent," + ",".join(MODULES))
        expect(f"{dtype}: a wrong peer is said by the exit status", code == 10, (code, said))
        expect(f"{dtype}: what is missing is a line that says how to get it",
               said.startswith("absent: not here; pip install no-such-package\n") and "absent" not in rows, said)
        right = rows["fake_right gqa"]
        expect(f"{dtype}: a right peer has a time", right["verdict"] == "right" and float(right["times_ours"]) > 0
               and float(right["times_ours_lo"]) <= float(right["times_ours"]) <= float(right["times_ours_hi"])
               and right["rounds"] == "3" and float(right["error"]) < 1e-12 and right["version"] == "0.1"
               and right["computes"] == dtype and 0 < float(right["ours_err_over_bound"]) <= 1, right)
        for name in ("fake_right off", "fake_short", "fake_large", "fake_nan", "fake_shape"):
            expect(f"{dtype}: {name} is wrong, and its time is not used", rows[name]["verdict"] == "wrong"
                   and not rows[name]["times_ours"] and not rows[name]["peer_ms"], rows[name])
        expect(f"{dtype}: one way may lack", float(rows["fake_part here"]["times_ours"]) > 0, rows["fake_part here"])
        for name, text in (("fake_none", "has none"), ("fake_part paged", "no such cache"), ("fake_raises", "ValueError: no such kernel"),
                           ("fake_ends", "exit status 3: noise on stdout"), ("fake_ends_late", "exit status 4"),
                           ("fake_import", "ModuleNotFoundError: No module named 'no_such_module_at_all'")):
            row = rows[name]
            expect(f"{dtype}: {name} is a line", row["verdict"] == text and not row["times_ours"] and text in said, row)
    code, said, rows = run(folder, program, "--dtype", "f16", "--peers", "fake_right")
    expect("one way that is wrong is enough", code == 10 and len(rows) == 2, said)
    code, said, rows = run(folder, program, "--dtype", "f16,f32", "--peers", "fake_none")
    expect("nothing wrong", code == 0, (code, said))
    code, said, rows = run(folder, program, "--dtype", "f16,f32", "--peers", "fake_ends_late")
    late = rows["fake_ends_late"]
    expect("a peer that is lost begins again at the next point", late["dtype"] == "f32" and late["error"], said)
    code, said, rows = run(folder, program, "--peers", "absent,ggml")
    expect("no peer at all", code == 77 and "--ggml" in said and said.count("\n") == 2 and not rows, (code, said))
    code, said, rows = run(folder, program, "--peers", "fake_none", "--ctx", "0")
    expect("what habench says of a wrong case", code == 40 and "ctx" in said and not rows, (code, said))
    code, said, rows = run(folder, os.path.join(folder, "nowhere"), "--peers", "fake_none")
    expect("habench is not built", code == 40 and "nowhere" in said, (code, said))
    wrong = os.path.join(folder, "in_turns")
    with open(wrong, "w") as file:
        file.write("#!/bin/sh\necho 'error over bound 3' >&2\nexit 10\n")
    os.chmod(wrong, 0o755)
    code, said, rows = run(folder, wrong, "--peers", "fake_none", "--dtype", "f16")
    expect("habench is wrong", code == 10 and "error over bound 3" in said, (code, said))


def test_numbers():
    numbers = worker.np.array([1.0, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -20, -3.0e38], worker.np.float32)
    kept = worker.widen(worker.round_to(numbers, "bf16"), "bf16")
    expect("bf16 rounds to nearest, ties to even", list(kept[:4]) == [1, 1, 1 + 2 ** -6, 1 + 2 ** -7]
           and abs(kept[4] / -3.0e38 - 1) < 2 ** -8, kept)
    sets = worker.make("bf16", 500, 3 * 2 * 8 * 500 * 128 * 2 - 1)
    expect("as many sets as fill what is gone through, no two alike", len(sets) == 3 and sets[0][0].shape == (32, 128)
           and all(x.shape == (8, 500, 128) for s in sets for x in s[1:])
           and len({x.tobytes() for s in sets for x in s[1:]}) == 6)


def test_markdown():
    at = {"dtype": "f16", "ctx": "64", "threads": 2}
    timed = {"ours_ms": 2.0, "times_ours": 3.0, "times_ours_lo": 2.5, "times_ours_hi": 3.25}
    rows = [dict(at, peer="a", way="gqa", verdict="right", **timed), dict(at, peer="b", way="gqa", verdict="wrong"),
            dict(at, peer="c", verdict="has none"), dict(at, peer="c", way="x", verdict="right", ctx="9", **timed)]
    said = peers.markdown(rows)
    expect("a table", said == "| type | keys | threads | habench, ms | a gqa | b gqa | c x |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n"
           "| f16 | 64 | 2 | 2.00 | 3.00, 2.50 to 3.25 | wrong | has none |\n"
           "| f16 | 9 | 2 | 2.00 |  |  | 3.00, 2.50 to 3.25 |\n", said)


def test_words():
    for words in (["--dtype", "f8"], ["--peers", "tensorflow"], ["--ctx", "many"]):
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
            peers.parse(words)
            expect(f"{words} is refused", False)
        expect(f"{words}: which word", words[1] in said.getvalue(), said.getvalue())


def test_program(program):
    """Of habench's side: as many times as were asked for, and a case that it does not know."""
    case = peers.POINT.format(layout="natural", dtype="f16", ctx=64, threads=1)
    done = subprocess.run([program, case], input="3\n1\n", stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.split("\n") if line]
    expect("three lines", done.returncode == 0 and [len(line["ns"]) for line in lines[1:]] == [3, 1]
           and all(ns > 0 for line in lines[1:] for ns in line["ns"]), done)
    for words, status in ((["smoke"], 40), ([case + ",colour=red"], 40), ([], 64)):
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        one = not done.stdout and done.stderr.count("\n") == 1
        expect(f"{words}: one line", done.returncode == status and one, done)


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_interval, test_rounds, test_turn, test_numbers, test_markdown, test_words):
            test()
        test_program(program)
        test_peers(folder, program)
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main(*map(os.path.abspath, sys.argv[1:]))
