"""link.csv: how fast bytes move, by the size of the pieces."""

from report.charts import SERIES_MAX, Choice, Column, Figure, axis, lines, sizes
from report.files import clean, median, positive

LAYOUTS_MAX = 8
WAYS = {"h2d": "to the device", "d2h": "back to the host"}


def link_figure(folders, differ):
    rows = []
    for folder in folders:
        for row in folder.last.table("link.csv"):
            rate, piece, ceiling = positive(row.get("GBps")), positive(row.get("piece_bytes")), positive(row.get("ceiling_GBps"))
            of = ceiling if differ else 1
            if row.get("verdict") not in ("pass", "suspect") or not rate or not piece or not of:
                continue
            lo, hi = positive(row.get("GBps_lo")), positive(row.get("GBps_hi"))
            rows.append({"way": WAYS.get(row.get("direction"), clean(row.get("direction", "?"), 20)), "layout": clean(row.get("layout", "?"), 20),
                         "series": clean(row.get("method", "?"), 40), "side": folder.label, "x": piece, "y": rate / of,
                         "lo": lo / of if lo and hi and of else None, "hi": hi / of if lo and hi and of else None,
                         "ceiling": 1 if differ else ceiling, "share": rate / ceiling if ceiling else None, "case": clean(row["case_id"])})
    if not rows:
        return None
    sides = [f.label for f in folders if any(r["side"] == f.label for r in rows)]
    unit = "share" if differ else "GB/s"
    columns = [Column("series", "method"), Column("side", "folder"), Column("x", "piece", "bytes"), Column("y", "rate", unit), Column("lo", "from", unit),
               Column("hi", "to", unit), Column("ceiling", "ceiling", unit), Column("share", "of the ceiling", "share"), Column("case", "case")]
    choices = []
    for way in list(dict.fromkeys(r["way"] for r in rows))[:LAYOUTS_MAX]:
        for layout in list(dict.fromkeys(r["layout"] for r in rows if r["way"] == way))[:LAYOUTS_MAX]:
            these = [r for r in rows if (r["way"], r["layout"]) == (way, layout)]
            ceilings = [r["ceiling"] for r in these if r["ceiling"]]
            of = {side: median([r["ceiling"] for r in these if r["ceiling"] and r["side"] == side]) for side in sides}
            best = {}
            for r in these:  # one line for one folder's ceiling
                r["ceiling"] = of[r["side"]]
                best[r["series"]] = max(best.get(r["series"], 0), r["y"])
            names = sorted(best, key=lambda n: -best[n])
            note = f"{SERIES_MAX} of {len(names)} methods are drawn." if len(names) > SERIES_MAX else ""
            names = names[:SERIES_MAX]
            these = [r for r in these if r["series"] in names]
            x = sizes("x", "size of a piece (bytes)", [r["x"] for r in these])
            y = axis("y", "share of the link's ceiling" if differ else "GB/s", log=True, axis={"format": "~g"})
            label = f"{way}, {layout} pieces"
            choices.append(Choice(label, lines(columns, x, y, names, f"Rate by size of the piece, {label}", sides, rule="ceiling" if ceilings else None),
                                  columns, sorted(these, key=lambda r: (r["series"], r["x"])), note))
    text = "The dashed level line is the ceiling: large pinned copies that way, in the same run."
    if differ:
        text += " The machines differ: rates are shares of each machine's own ceiling."
    return Figure("link", "The link by size of the pieces", text, choices, "Way")
