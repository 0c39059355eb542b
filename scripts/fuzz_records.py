#!/usr/bin/env python3
"""fuzz_records.py PROGRAM [SECONDS [SEED [KEEP]]]: damages records of runs, and gives them to `compare`, `history`, `report --format` and
`run --resume`. Each may refuse a record by a line on stderr; none may crash, wait, or fail without a line. PROGRAM: best one of
`ninja build/asan/habench_test`. Prints how many were tried; what fails is kept in KEEP, with its command. Exit code 1: there is one.
The same SEED tries the same damages of records that are alike."""
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

SUITE = """[default]
ctx = 64
layers = 1
steps = 1
time = 1ms
[steps]
variant = resident hgca
[merges]
suite = lse_merge
case = gaps one_state
states = 2
dtype = f32
form = natural
"""
VALUES = ["", "nan", "inf", "-inf", "1e999", "-1", "0", "1e-320", "18446744073709551616", "x", "\"", "\r", "\0", "pass", "fail", "a,b", "=1", "\x1b[31m", "é" * 300]


def run(program, *words):
    return subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120,
                          env={**os.environ, "ASAN_OPTIONS": "exitcode=99:detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99"})


def files_of(folder, ending):
    return sorted(os.path.join(at, f) for at, _, names in os.walk(folder) for f in names if f.endswith(ending))


def table(rng, path, other):
    """A CSV: rows removed, doubled, swapped, cut; columns removed, swapped; fields exchanged for others."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = [line.split(",") for line in file.read().split("\r\n")]
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        row, to = rng.randrange(len(rows)), rng.randrange(len(rows))
        kind = rng.randrange(9)
        if kind == 0:
            del rows[row:row + rng.choice((1, 1, 5, 100))]
            rows = rows or [[""]]
        elif kind == 1:
            rows[to:to] = rows[row:row + rng.choice((1, 1, 5))]
        elif kind == 2:
            rows[row], rows[to] = rows[to], rows[row]
        elif kind == 3:
            rows[row] = rows[row][:rng.randrange(len(rows[row]) + 1)] or [""]
        elif kind == 4:
            column = rng.randrange(max(map(len, rows)))
            rows = [r[:column] + r[column + 1:] or [""] for r in rows]
        elif kind == 5:
            a, b = (rng.randrange(max(map(len, rows))) for _ in range(2))
            for r in rows[rng.randrange(2):]:
                if max(a, b) < len(r):
                    r[a], r[b] = r[b], r[a]
        else:
            column = rng.randrange(len(rows[row]))
            value = rng.choice(VALUES) if kind < 8 else rng.choice(rng.choice(rows))
            rows[row][column] = rng.choice((f'"{value}"', value)) if kind < 8 else value
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write("\r\n".join(map(",".join, rows)))


def raw(rng, path, other):
    """Any file: bytes flipped, cut, a piece doubled or of zeros."""
    with open(path, "rb") as file:
        bytes_ = bytearray(file.read())
    at = rng.randrange(len(bytes_) + 1)
    end = min(len(bytes_), at + rng.choice((1, 8, 100, 4096)))
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.choice((1, 1, 3, 30))):
            if bytes_:
                bytes_[rng.randrange(len(bytes_))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del bytes_[at:rng.choice((end, len(bytes_)))]
    elif kind == 2:
        bytes_[at:at] = bytes_[at:end]
    else:
        bytes_[at:end] = bytes(end - at)
    with open(path, "wb") as file:
        file.write(bytes_)


def whole(rng, path, other):
    """A file removed, emptied, or the one of another record."""
    kind = rng.randrange(3)
    if kind == 0:
        os.unlink(path)
    elif kind == 1 or not other:
        open(path, "wb").close()
    else:
        shutil.copyfile(rng.choice(other), path)


def damage(rng, folder, others):
    for _ in range(rng.choice((1, 1, 2, 4))):
        how = rng.choice((table, table, table, raw, whole))
        files = files_of(folder, ".csv" if how is table else "")
        if files:
            path = rng.choice(files)
            how(rng, path, [f for f in others if f.endswith(os.path.splitext(path)[1])])


def seeds(program, folder):
    with open(f"{folder}/small.suite", "w", encoding="utf-8") as file:
        file.write(SUITE)
    for name, mode, more in (("a", "run", []), ("b", "run", []), ("c", "run", ["--seed", "7"]), ("d", "check", [])):
        done = run(program, mode, "-q", f"{folder}/small.suite", "--processes", "2", *more, "-o", f"{folder}/{name}")
        if done.returncode:
            sys.exit(f"fuzz_records.py: no record to begin with: {done.stderr}")
    os.mkdir(f"{folder}/nights")
    for name in "ab":
        shutil.copytree(f"{folder}/{name}", f"{folder}/nights/{name}")


def attempt(program, folder, work, rng):
    """One: the command and, where it fails, why."""
    base, bad = f"{folder}/a", f"{work}/bad"
    what = rng.choice(("compare", "compare", "history", "report", "resume"))
    name = "nights" if what == "history" else "a" if what == "resume" else rng.choice(("a", "b", "c", "d", "nights"))
    if what == "resume" and rng.random() < 0.9:
        name = "d"  # which measures nothing
    shutil.copytree(f"{folder}/{name}", bad)
    damage(rng, bad, files_of(f"{folder}/c", ""))
    words = {"compare": ["compare", *rng.choice(([base, bad], [bad, base], [base, f"{folder}/b", bad])), "--junit", f"{work}/junit.xml"],
             "history": ["history", bad], "report": ["report", bad, "--format", rng.choice(("csv", "md", "openmetrics"))],
             "resume": ["check" if name == "d" else "run", "-q", f"{folder}/small.suite", "--processes", "2", "--resume", "-o", bad]}[what]
    if what in ("compare", "history") and rng.random() < 0.3:
        words += ["--format", "json"]
    try:
        done = run(program, *words)
    except subprocess.TimeoutExpired:
        return what, words, "no end in 120 s"
    said = done.stderr.strip()
    if done.returncode in (70, 99) or done.returncode < 0 or done.returncode > 100:
        return what, words, f"exit code {done.returncode}: {said[-3000:]}"
    if done.returncode and not said and not done.stdout.strip():
        return what, words, f"exit code {done.returncode} without a word"
    return what, words, None


def main(program, seconds=60, seed=1, keep="fuzz_failed"):
    tried, failed = collections.Counter(), 0
    with tempfile.TemporaryDirectory(prefix="habench-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        seeds(program, folder)
        end, n = time.monotonic() + float(seconds), 0
        while time.monotonic() < end:
            work, n = f"{folder}/work", n + 1
            os.mkdir(work)
            what, words, why = attempt(program, folder, work, random.Random(f"{seed} {n}"))
            tried[what] += 1
            if why:
                failed += 1
                kept = os.path.join(keep, f"{seed}-{n}")
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(work, kept)
                with open(f"{kept}/why", "w", encoding="utf-8") as file:
                    file.write(f"{' '.join(words)}\n{why}\n")
                print(f"FAILED: {kept}: {' '.join(words)}: {why.splitlines()[0] if why else ''}", file=sys.stderr)
            shutil.rmtree(work)
    print(f"{sum(tried.values())} damaged records ({', '.join(f'{k} {v}' for k, v in sorted(tried.items()))}), {failed} failed; seed {seed}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
