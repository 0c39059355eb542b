"""cpu_kernels.csv: each kernel against its ceiling."""

from collections import Counter

from report.charts import KINDS_MAX, Choice, Column, Figure, axis, dots
from report.files import clean, median, number, positive
from report.text import size

KEYS = ("layout", "dtype", "query", "isa_used", "team", "q_len", "budget", "block", "bits", "dims", "centroids", "books", "table")
SIZES = ("ctx", "batch", "heads", "head_dim")
LIKE_BUILT_IN = ("attend", "append")  # beside others whole_over_beside is over something else: docs/kernels.md
NAMES_MAX, KERNELS_MAX, ROWS_MAX = 48, 24, 3000
COLUMNS = (Column("name", "kernel"), Column("side", "folder"), Column("threads", "threads"), Column("share", "of the ceiling", "share"),
           Column("lo", "from", "share"), Column("hi", "to", "share"), Column("GBps", "reads", "GB/s"), Column("ceiling", "memory", "GB/s"),
           Column("us", "time", "us"), Column("disturbed", "disturbed"), Column("case", "case"), Column("kind"))
# shown where a row has them: records before plans have none
PLANNED = (Column("limit", "limit"), Column("plan", "plan"), Column("gain", "time over built in", "times"))


def words_of(rows, key):
    """What the processes of a case say: one word, where they agree."""
    return clean(" or ".join(dict.fromkeys(r[key] for r in rows if r.get(key))), 40)


def over_built_in(rows):
    """The time of a run by the plan over that of the same beside it as it is built in, or None."""
    found = [x for x in (positive(r.get("whole_over_beside")) for r in rows) if x]
    return median(found) if found and rows[0].get("kernel") in LIKE_BUILT_IN else None


def rows_of(folder):
    """A row for each case: its best share of the ceiling, as `floor` has it, or `ratio` where there is no floor."""
    by_case = {}
    for row in folder.last.table("cpu_kernels.csv"):
        if row.get("verdict") in ("pass", "suspect"):
            by_case.setdefault((row["case_id"], row.get("section", "")), []).append(row)
    out = []
    for rows in by_case.values():
        row = rows[0]
        key = next((k for k in ("floor", "ratio") if any(positive(r.get(k)) for r in rows)), None)
        found = [x for x in (positive(r.get(key)) for r in rows) if x] if key else []
        if not found:
            continue
        lo, hi = (positive(row.get(f"{key}_lo")), positive(row.get(f"{key}_hi"))) if len(found) == 1 else (min(found), max(found))
        out.append({"kernel": clean(row.get("kernel", "?"), 30), "row": row, "share": median(found), "lo": lo, "hi": hi, "side": folder.label,
                    "threads": clean(row.get("threads_used") or row.get("threads") or "?", 10), "GBps": number(row.get("GBps")),
                    "ceiling": number(row.get("ceiling_GBps")), "us": (positive(row.get("ns")) or 0) / 1e3 or None,
                    "limit": words_of(rows, "limit"), "plan": words_of(rows, "plan"), "gain": over_built_in(rows),
                    "disturbed": clean(row.get("disturbed", ""), 20), "case": clean(row["case_id"])})
    return out


def named(rows):
    """A name for each row from what differs between them."""
    values = {key: {r["row"].get(key, "") for r in rows} for key in KEYS + SIZES}
    for r in rows:
        words = [shown(key, r["row"].get(key, "")) for key in KEYS + SIZES if len(values[key]) > 1 and r["row"].get(key)]
        r["name"] = clean(" ".join(words) or r["kernel"], 70)


def shown(key, text):
    x = number(text)
    plain = {"ctx": "{}", "batch": "batch {}", "q_len": "{} queries", "budget": "{}%", "block": "blocks of {}", "query": "query {}"}
    return plain.get(key, "{}" if key in ("layout", "dtype", "heads", "isa_used", "table") else key + " {}").format(
        size(x) if x and key == "ctx" else text)


def kernels_figure(folders):
    rows = [r for f in folders for r in rows_of(f)[:ROWS_MAX]]
    if not rows:
        return None
    sides = [f.label for f in folders if any(r["side"] == f.label for r in rows)]
    threads = sorted({r["threads"] for r in rows}, key=lambda t: (len(t), t))[:KINDS_MAX]
    rows = [r for r in rows if r["threads"] in threads]
    named_threads = {t: "1 thread" if t == "1" else f"{t} threads" for t in threads}
    for r in rows:
        r["kind"] = r["side"] if len(sides) > 1 else named_threads[r["threads"]]
    kinds = sides if len(sides) > 1 else list(named_threads.values())
    x = axis("share", "share of what memory and arithmetic of these threads allow", zero=True, axis={"format": "%"})
    choices = []
    kernels = [kernel for kernel, _ in Counter(sorted(r["kernel"] for r in rows)).most_common(KERNELS_MAX)]
    overview = []
    for kernel in kernels:
        for side in sides:
            for t in threads:
                these = [r for r in rows if (r["kernel"], r["side"], r["threads"]) == (kernel, side, t)]
                if these:
                    shares = [r["share"] for r in these]
                    overview.append({**{c.key: None for c in COLUMNS}, "name": kernel, "side": side, "threads": t, "share": median(shares),
                                     "lo": min(shares), "hi": max(shares), "kind": these[0]["kind"], "case": f"{len(these)} cases"})
    if len(kernels) > 1:
        choices.append(Choice("all kernels (median and range of their cases)", dots(COLUMNS, x, kernels, kinds, "Share of the ceiling by kernel", rule=1),
                              COLUMNS, overview))
    for kernel in kernels:
        these = [r for r in rows if r["kernel"] == kernel]
        named(these)
        these.sort(key=lambda r: (r["row"].get("layout", ""), r["row"].get("dtype", ""), number(r["row"].get("ctx")) or 0, r["name"]))
        names = list(dict.fromkeys(r["name"] for r in these))
        columns = [*COLUMNS, *(c for c in PLANNED if any(r[c.key] for r in these))]
        note = f"{NAMES_MAX} of {len(names)} are drawn." if len(names) > NAMES_MAX else ""
        choices.append(Choice(kernel, dots(columns, x, names[:NAMES_MAX], kinds, f"Share of the ceiling, {kernel}", rule=1, step=20), columns,
                              [r for r in these if r["name"] in names[:NAMES_MAX]], note))
    return Figure("kernels", "Kernels against their ceiling",
                  "The ceiling is what the same threads read from memory, or multiply in registers, at that moment: 100% is all that this machine has. "
                  "It is a share, and so means the same on every machine.", choices, "Kernel")
