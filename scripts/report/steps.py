"""The time of a step by context, and quality against speed."""

from report.cases import by_shape, context_text, contexts, shape_labels, sides_of, steps_of
from report.charts import SERIES_MAX, Choice, Column, Figure, axis, colour, dots, lines, shape, sizes, spec, tips, INK
from report.files import median

STEPS_MAX = 3000  # of a folder
CHOICES_MAX, DOTS_MAX, CONTEXTS_MAX = 24, 60, 12
LEAST = 1e-9  # what is nearer than that to full attention is drawn there


def measured(folders):
    return [s for f in folders for s in steps_of(f.last, f.label)[:STEPS_MAX] if s.ns]


def scale(differ):
    """How a time is shown: in ms on one machine, over full attention's on the same machine where machines differ."""
    def value(step, ns):
        if ns is None:
            return None
        if differ:
            return ns / step.full if step.full else None
        return ns / 1e6
    return value


TIME = {False: ("time of a step (ms)", "ms"), True: ("time over full attention's on the same machine", "x")}


def table(steps, value, unit):
    rows = []
    for s in steps:
        y = value(s, s.ns)
        if y is None:
            continue
        rows.append({"series": s.label, "name": s.label, "side": s.side, "kind": s.side, "x": s.context, "y": y, "lo": value(s, s.lo),
                     "hi": value(s, s.hi), "processes": s.processes, "full": s.ns / s.full if s.full else None,
                     "floor": s.figure("floor_ratio"), "case": s.row["case_id"][:200]})
    for row in rows:
        if row["lo"] is None or row["hi"] is None:
            row["lo"] = row["hi"] = None
    columns = [Column("series", "variant"), Column("side", "folder"), Column("x", "context", "tokens"), Column("y", "step", unit),
               Column("lo", "from", unit), Column("hi", "to", unit), Column("full", "over full attention", "x"),
               Column("floor", "physical floor / step", "share"), Column("processes", "processes", "processes"), Column("case", "case"),
               Column("name"), Column("kind")]
    return columns, rows


def by_context(steps, value, differ, label, sides):
    """Lines over contexts where there are some, then dots of all variants for each context that has more than the lines."""
    title, unit = TIME[differ]
    columns, rows = table(steps, value, unit)
    if not rows:
        return []
    of = {}
    for r in rows:
        of.setdefault(r["series"], []).append(r)
    names = sorted(of, key=lambda n: median([r["y"] for r in of[n]]))
    several = [n for n in names if len({r["x"] for r in of[n]}) > 1]
    out, drawn = [], several[:SERIES_MAX]
    if drawn:
        note = f"{len(drawn)} of {len(names)} variants are drawn; the others have one context." if len(drawn) < len(names) else ""
        if len(drawn) < len(several):
            note = f"{len(drawn)} of {len(several)} variants with several contexts are drawn."
        shown = [r for r in rows if r["series"] in drawn]
        made = lines(columns, sizes("x", "context (tokens)", [r["x"] for r in shown if r["x"]]), axis("y", title, log=True), drawn,
                     f"{title} by context, {label}", sides)
        out.append(Choice(label, made, columns, shown, note))
    for x in sorted({r["x"] for r in rows}, key=lambda x: x or 0)[:CONTEXTS_MAX]:
        these = [r for r in rows if r["x"] == x]
        here = sorted({r["series"] for r in these})
        if drawn and set(here) <= set(drawn):
            continue
        note = f"{DOTS_MAX} of {len(here)} variants are drawn." if len(here) > DOTS_MAX else ""
        here = sorted(here, key=lambda n: median([r["y"] for r in these if r["series"] == n]))[:DOTS_MAX]
        made = dots(columns, axis("y", title, zero=True), here, list(sides), f"{title}, {label}", "folder", rule=1 if differ else None)
        out.append(Choice(f"{label}, context {context_text(x)}", made, columns, [r for r in these if r["series"] in here], note))
    return out


def time_figure(folders, differ):
    steps, value = measured(folders), scale(differ)
    groups = by_shape(steps)
    labels = shape_labels([shape_ for shape_, _ in groups])
    sides = [f.label for f in folders]
    groups.sort(key=lambda g: (-sides_of(g[1]), -len(contexts(g[1])) * len(g[1])))
    choices = [c for s, g in groups[:CHOICES_MAX] for c in by_context(g, value, differ, labels[s], sides)]
    if not choices:
        return None
    text = ("Lines end where a case was not run. An interval is that of one process (95%, of its median); of several processes "
            "it is from the fastest to the slowest. ")
    if differ:
        text = "The machines differ: each time is over that of full attention (resident) on the same machine. " + text
    if len(groups) > CHOICES_MAX:
        text += f"The {CHOICES_MAX} largest of {len(groups)} shapes are here."
    return Figure("steps", "Time of a step", text, choices, "Shape")


# ---- quality against speed ----------------------------------------------------------------------------------------

MEASURES = (("rel_l2", "deviation from full attention (relative L2)", lambda s: s.figure("rel_l2")),
            ("mass", "softmax mass that was not read (1 - mass_mean)",
             lambda s: None if s.figure("mass_mean") is None else 1 - s.figure("mass_mean")))


def front(points):
    """Those that no other beats in both: nothing is faster and as near."""
    best, found = None, set()
    for i in sorted(range(len(points)), key=lambda i: (points[i]["x"], points[i]["y"])):
        if best is None or points[i]["y"] < best:
            best = points[i]["y"]
            found.add(i)
    return found


def trade(steps, value, differ, what, label):
    key, title, of = what
    points = []
    for s in steps:
        y, x = of(s), value(s, s.ns)
        if y is None or x is None or s.row.get("verdict") == "unchecked":
            continue
        points.append({"x": x, "y": max(y, LEAST), "label": s.label, "family": s.family, "side": s.side, "mass": s.figure("mass_mean"),
                       "recall": s.figure("recall"), "keys": s.figure("keys_mean"), "l2": s.figure("rel_l2"), "case": s.row["case_id"][:200]})
    if len(points) < 3:
        return None
    for side in {p["side"] for p in points}:
        mine = [p for p in points if p["side"] == side]
        best = front(mine)
        for i, p in enumerate(mine):
            p["front"] = "yes" if i in best else "no"
            p["name"] = p["label"] if i in best and side == points[0]["side"] else ""
    unit = TIME[differ][1]
    columns = [Column("label", "variant"), Column("side", "folder"), Column("x", "step", unit), Column("l2", "deviation", "rel L2"),
               Column("mass", "mass read", "share"), Column("recall", "recall", "share"), Column("keys", "keys used", "keys"),
               Column("front", "none is faster and nearer"), Column("case", "case"), Column("y"), Column("family"), Column("name")]
    families = sorted({p["family"] for p in points})
    x, y = axis("x", TIME[differ][0], log=True, axis={"format": "~g"}), axis("y", title, log=True, axis={"format": ".0e"})
    sides = sorted({p["side"] for p in points})
    tone = colour("family", families, "family") if len(sides) == 1 else colour("side", sides, "folder")
    layers = [
        {"mark": {"type": "line", "interpolate": "step-after", "strokeDash": [4, 3], "color": INK, "opacity": 0.6},
         "transform": [{"filter": "datum.front == 'yes'"}], "encoding": {"x": x, "y": y, "detail": {"field": "side"}}},
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.95},
         "encoding": {"x": x, "y": y, "color": tone, "shape": shape("family", families, "family"), "tooltip": tips(columns)}},
        {"mark": {"type": "text", "align": "left", "dx": 7, "dy": -7, "color": INK, "fontSize": 11, "limit": 170},
         "encoding": {"x": x, "y": y, "text": {"field": "name"}}},
    ]
    return Choice(f"{label}: {'deviation' if key == 'rel_l2' else 'mass'}", spec(layers, 340, f"{title} over {TIME[differ][0]}, {label}"),
                  columns, sorted(points, key=lambda p: p["x"]))


def quality_figure(folders, differ):
    steps, value = measured(folders), scale(differ)
    groups = {}
    for s in steps:
        groups.setdefault((s.shape, s.context), []).append(s)
    labels = shape_labels([shape_ for shape_, _ in groups])
    choices = []
    for (shape_, context), group in sorted(groups.items(), key=lambda g: (-sides_of(g[1]), -len({s.variant for s in g[1]}), -(g[0][1] or 0))):
        for what in MEASURES:
            made = trade(group, value, differ, what, f"{labels[shape_]}, context {context_text(context)}")
            if made:
                choices.append(made)
        if len(choices) >= CHOICES_MAX:
            break
    if not choices:
        return None
    text = ("Down and to the left is better. The dashed line joins those that are worth it: nothing here is both faster and nearer to full "
            f"attention. What is nearer than {LEAST:g} is drawn there. Deviation is a number and no verdict: every output was right for the "
            "keys it used.")
    return Figure("quality", "Quality against speed", text, choices, "Shape")
