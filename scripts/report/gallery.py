"""lse_merge.csv, mutants.csv, defects.csv: merges, and whether planted defects are caught."""

from report.charts import COLOURS, KINDS_MAX, Choice, Column, Figure, axis, colour, dots, spec, tips
from report.files import clean, number, positive

NAMES_MAX = 30
BINS = ("exact", "to_1_512", "to_1_256", "to_1_128", "to_1_64", "to_1_32", "to_1_16", "to_1_8", "to_1_4", "to_1_2", "to_1")
LABELS = ("0", "<2^-9", "2^-8", "2^-7", "2^-6", "2^-5", "2^-4", "2^-3", "2^-2", "2^-1", "1")


def merge_figure(folders):
    rows = []
    for folder in folders:
        for row in folder.last.table("lse_merge.csv"):
            if row.get("case") == "gallery" or row.get("verdict") not in ("pass", "suspect", "fail"):
                continue
            rows.append((folder.label, row))
    by_case, spread, known = {}, {}, set()
    for side, row in rows:
        subject = clean(row.get("subject") or row.get("by") or "?", 40)
        kind = f"{subject} ({side})" if side else subject
        if kind not in known and len(known) == KINDS_MAX:
            continue
        known.add(kind)
        worst = positive(row.get("err_over_bound"))
        name = clean(" ".join(filter(None, (row.get("case"), row.get("problem"), row.get("kind")))), 50)
        if worst and (by_case.get((name, kind)) or {"y": 0})["y"] < worst:
            by_case[name, kind] = {"name": name, "kind": kind, "y": worst, "verdict": row["verdict"], "case": clean(row["case_id"])}
        for column, label in zip(BINS, LABELS):
            n = number(row.get(column))
            if n and n > 0:
                spread[kind, label] = spread.get((kind, label), 0) + n
    choices = []
    kinds = sorted({kind for _, kind in by_case})
    if by_case:
        found = sorted(by_case.values(), key=lambda r: -r["y"])
        names = list(dict.fromkeys(r["name"] for r in found))[:NAMES_MAX]
        columns = [Column("name", "case"), Column("kind", "who merges"), Column("y", "worst error / bound", "bounds"), Column("verdict", "verdict"),
                   Column("case", "id"), Column("lo"), Column("hi")]
        x = axis("y", "worst error over its bound (right up to 1)", log=True, axis={"format": "~g"})
        choices.append(Choice(f"worst error of each case, the {NAMES_MAX} largest" if len({r["name"] for r in found}) > NAMES_MAX else "worst error of each case", dots(columns, x, names, kinds, "Worst error over its bound", "who merges", rule=1, step=14),
                              columns, [r for r in found if r["name"] in names]))
    if spread:
        total = {}
        for (kind, _), n in spread.items():
            total[kind] = total.get(kind, 0) + n
        found = [{"label": label, "kind": kind, "n": n, "share": n / total[kind]} for (kind, label), n in spread.items()]
        columns = [Column("kind", "who merges"), Column("label", "error / bound up to"), Column("n", "merges", "merges"), Column("share", "share", "share")]
        kinds = sorted(total)
        layers = [{"mark": {"type": "bar"}, "encoding": {
            "x": {"field": "label", "type": "nominal", "sort": list(LABELS), "title": "error over its bound, up to"},
            "xOffset": {"field": "kind", "type": "nominal", "sort": kinds},
            "y": {"field": "share", "type": "quantitative", "title": "share of the merges", "axis": {"format": "%"}},
            "color": colour("kind", kinds, "who merges"), "tooltip": tips(columns)}}]
        choices.insert(0, Choice("all merges by their error", spec(layers, 240, "Share of merges by error over bound"), columns, found))
    if not choices:
        return None
    return Figure("merges", "Merges of attention states", "Each merge by log-sum-exp is judged against binary64 and a bound derived for it.", choices, "Shown")


def galleries(folders):
    """For each planted defect of each folder: by what it was found, and what it showed; those that were missed first."""
    out = []
    for folder in folders:
        for name, key, by in (("lse_merge.csv", "defect", "found_by"), ("defects.csv", "defect", "seen_in"), ("mutants.csv", "mutant", "seen_as")):
            for row in folder.last.table(name):
                if not row.get(key) or (name == "lse_merge.csv" and row.get("case") != "gallery"):
                    continue
                out.append({"side": folder.label, "of": name[:-4], "defect": clean(row[key], 60), "verdict": clean(row.get("verdict", "?"), 20),
                            "by": clean(row.get(by) or "", 120), "showed": clean(row.get("showed") or row.get("seen_as") or row.get("reason") or "", 160),
                            "what": clean(row.get("what") or row.get("breaks") or "", 160)})
    return sorted(out, key=lambda r: (r["verdict"] == "pass", r["of"]))


def gallery_figure(found):
    """How many of each gallery were caught."""
    if not found:
        return None
    count = {}
    for row in found:
        word = {"pass": "caught", "fail": "missed"}.get(row["verdict"], "not judged")
        key = (f"{row['of']} ({row['side']})" if row["side"] else row["of"]), word
        count[key] = count.get(key, 0) + 1
    words = [w for w in ("caught", "missed", "not judged") if any(k[1] == w for k in count)]
    names = list(dict.fromkeys(k[0] for k in count))
    rows = [{"name": name, "word": word, "n": n} for (name, word), n in count.items()]
    columns = [Column("name", "gallery"), Column("word", "outcome"), Column("n", "defects", "defects")]
    tone = {**colour("word", words), "scale": {"domain": words, "range": [{"caught": COLOURS[2], "missed": COLOURS[3], "not judged": COLOURS[6]}[w] for w in words]}}
    tone["legend"] = {"title": None, "orient": "bottom"}
    layers = [{"mark": {"type": "bar", "stroke": "var(--card)"},
               "encoding": {"y": {"field": "name", "type": "nominal", "sort": names, "title": None},
                            "x": {"field": "n", "type": "quantitative", "title": "planted defects", "stack": "zero"}, "color": tone, "tooltip": tips(columns)}}]
    return Figure("gallery", "Planted defects", "Each is a known mistake that was put there on purpose: a check that does not see it is worth nothing.",
                  [Choice("all", spec(layers, 34 * len(names) + 20, "Planted defects that were caught"), columns, rows)])
