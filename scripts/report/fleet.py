"""The page of a fleet: what `habench compare --fleet --format json` printed. Nothing is judged here; machines come in its order of suspicion."""

import json
import math
import os

from report.charts import Choice, Column, Figure, axis, dots, shape, tips, INK
from report.cases import short_machines, short_names
from report.files import clean, number
from report.page import TONES, fill
from report.text import percent, quantity

HEAT_MACHINES, HEAT_FIGURES, STRIPS_MAX, LISTED_MAX, PAGES_MAX, GROUPS_MAX, SHIFTS_MAX = 50, 40, 60, 200, 20, 40, 40
SIGMAS_MOST = 8
STATES = {"wrong": "bad", "disagrees": "bad", "stands out": "bad", "died": "bad", "did not end": "bad", "never answered": "bad", "missing": "bad",
          "disturbed": "warn", "not judged": "warn", "fits": "good"}
ABSENT = ("missing", "died", "did not end", "never answered")


class Fleet:
    def __init__(self):
        self.fleet, self.rows = {}, {"group": [], "figure": [], "machine": [], "deviation": [], "outputs": [], "shift": [], "machine_shift": [],
                                      "figure_shift": []}

    def group(self, index):
        return next((str(g.get("name", "?")) for g in self.rows["group"] if g.get("index") == index), str(index))


def tidy(value):
    """Texts that can be shown, whatever they are in."""
    if isinstance(value, str):
        return clean(value, 1200)
    if isinstance(value, dict):
        return {clean(k, 60): tidy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [tidy(v) for v in value[:2000]]
    return value


def read_fleet(path, notes):
    out, damaged = Fleet(), 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line, parse_constant=lambda name: None) if line.strip() else {}
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                damaged += 1
                continue
            row = tidy(row)
            if row.get("row") == "fleet":
                out.fleet = row
            elif row.get("row") in out.rows:
                out.rows[row["row"]].append(row)
    if damaged:
        notes.add("compare --fleet", "a line that is no JSON is left out", damaged)
    return out


def simulated(path):
    """Does a rank say that this fleet never was?"""
    try:
        names = [n for n in os.listdir(path) if n.endswith(".rank.json")]
        with open(os.path.join(path, min(names)), encoding="utf-8") as file:
            return json.load(file).get("simulated") is True
    except (OSError, ValueError, AttributeError):
        return False


# ---- figures -----------------------------------------------------------------------------------------------------------

def key(row):
    return str(row.get("case_id", "?")), str(row.get("figure", "?"))


def names_of(rows):
    """A short name for each case and figure, what the machine can do first."""
    short = short_names(sorted({key(r)[0] for r in rows}))
    return {key(r): f"{key(r)[1]} {short[key(r)[0]]}" for r in rows}


def machine_names(fleet):
    """short_machines of all that the plots show."""
    return short_machines(sorted({str(r.get("name") if kind == "machine_shift" else r.get("machine")) for kind in ("deviation", "machine_shift") for r in fleet.rows[kind]}))


def suspects(fleet):
    return [str(m.get("name", "?")) for m in fleet.rows["machine"] if m.get("state") not in (*ABSENT, "fits")]


def heat_figure(fleet, pages):
    """Machines by figures, the deviation of each in spreads of its group."""
    cells = [d for d in fleet.rows["deviation"] if number(d.get("sigmas")) is not None]
    shown = {str(m.get("name")) for m in fleet.rows["machine"][:HEAT_MACHINES]}
    cells = [c for c in cells if str(c.get("machine")) in shown]
    if not cells:
        return None
    names, labels, largest = names_of(cells), machine_names(fleet), {}
    for c in cells:
        size = abs(c["sigmas"]) + (1000 if c.get("called") else 0)
        largest[key(c)] = max(largest.get(key(c), 0), size)
    columns_of = sorted(largest, key=lambda k: -largest[k])[:HEAT_FIGURES]
    machines = [str(m.get("name")) for m in fleet.rows["machine"] if any(str(c.get("machine")) == str(m.get("name")) for c in cells)][:HEAT_MACHINES]
    rows = [{"machine": str(c.get("machine")), "label": labels[str(c.get("machine"))], "figure": names[key(c)], "y": c["sigmas"], "ratio": number(c.get("ratio")),
             "page": pages.get(str(c.get("machine")), ""), "shown": max(-SIGMAS_MOST, min(SIGMAS_MOST, c["sigmas"])), "called": "called" if c.get("called") else ""}
            for c in cells if key(c) in columns_of and str(c.get("machine")) in machines]
    columns = [Column("machine", "machine"), Column("figure", "figure"), Column("y", "deviation", "spreads"), Column("ratio", "over the median", "x"),
               Column("shown"), Column("page"), Column("label"), Column("called", "beyond chance")]
    encoding = {"x": {"field": "figure", "type": "nominal", "sort": [names[k] for k in columns_of], "title": None,
                      "axis": {"labelAngle": -60, "labelLimit": 240, "labelFontSize": 9, "labelOverlap": False}},
                "y": {"field": "label", "type": "nominal", "sort": [labels[m] for m in machines], "title": None}}
    layers = [
        {"mark": "rect",
         "encoding": {"color": {"field": "shown", "type": "quantitative", "title": "worse by so many spreads",
                                "scale": {"domain": [-SIGMAS_MOST, 0, SIGMAS_MOST], "range": ["#0072B2", "#f5f5f5", "#D55E00"]},
                                "legend": {"orient": "bottom", "direction": "horizontal", "gradientLength": 220}}, "tooltip": tips(columns)}},
        {"transform": [{"filter": "datum.page != ''"}], "mark": {"type": "rect", "opacity": 0, "cursor": "pointer"},
         "encoding": {"href": {"field": "page"}, "tooltip": tips(columns)}},
        {"transform": [{"filter": "datum.called != ''"}], "mark": {"type": "point", "shape": "cross", "filled": True, "size": 30, "color": "#000"}},
    ]
    drawn = {"data": {"name": "d"}, "width": "container", "height": max(120, 14 * len(machines) + 60), "description": "Deviations by machine and figure",
             "encoding": encoding, "layer": layers}
    return Figure("heat", "Where they deviate", f"The {len(machines)} most suspicious machines, the first on top, and the {len(columns_of)} figures that are furthest off; a "
                  "cross is beyond chance over the whole fleet.", [Choice("all", drawn, columns, rows)])


def strip(fleet, figure, labels):
    """The spread of one figure over its group, and the machines that deviate by name."""
    unit, group, q = str(figure.get("unit", "")), figure.get("group"), figure.get("quantiles")
    quantiles = [number(x) for x in q] if isinstance(q, list) else []
    if len(quantiles) != 7 or None in quantiles:
        return None
    rows = [{"machine": f"{label} of the group", "lo": quantiles[a], "hi": quantiles[b], "y": None, "kind": "group", "at": 0, "name": ""}
            for label, a, b in (("1 to 99%", 0, 6), ("5 to 95%", 1, 5), ("25 to 75%", 2, 4))]
    rows.append({"machine": "median", "lo": None, "hi": None, "y": quantiles[3], "kind": "median", "at": 0, "name": ""})
    own = [d for d in fleet.rows["deviation"] if key(d) == key(figure) and d.get("group") == group and number(d.get("value")) is not None]
    for d in sorted(own, key=lambda d: -abs(number(d.get("sigmas")) or 0))[:HEAT_MACHINES]:
        kind = "beyond chance" if d.get("called") else "within it"
        rows.append({"machine": str(d.get("machine", "?")), "lo": None, "hi": None, "y": d["value"], "kind": kind, "at": 0,
                     "name": labels[str(d.get("machine"))] if d.get("called") else ""})
    kinds = ["beyond chance", "within it", "median"]
    columns = [Column("machine", "machine"), Column("y", "value", unit or "share"), Column("lo", "from", unit or "share"), Column("hi", "to", unit or "share"),
               Column("kind", "which"), Column("at"), Column("name")]
    x = axis("y", f"{unit or 'share'} ({ {'less': 'less is better', 'more': 'more is better'}.get(str(figure.get('better')), 'neither is better')})",
             axis={"format": "~s"})
    tone = {"field": "kind", "type": "nominal", "scale": {"domain": kinds, "range": ["#D55E00", "#0072B2", "#8A8A8A"]},
            "legend": {"title": None, "orient": "bottom"}}
    y = {"field": "at", "type": "nominal", "axis": None, "title": None}
    layers = [
        {"transform": [{"filter": "isValid(datum.lo)"}], "mark": {"type": "bar", "height": 26, "opacity": 0.25, "color": "#8A8A8A"},
         "encoding": {"y": y, "x": {**x, "field": "lo"}, "x2": {"field": "hi"}, "tooltip": tips(columns)}},
        {"transform": [{"filter": "datum.kind == 'median'"}], "mark": {"type": "tick", "thickness": 2, "size": 40, "color": INK}, "encoding": {"y": y, "x": x}},
        {"transform": [{"filter": "isValid(datum.y) && datum.kind != 'median'"}], "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.9},
         "encoding": {"y": y, "x": x, "color": tone, "shape": shape("kind", kinds), "tooltip": tips(columns)}},
        {"transform": [{"filter": "datum.name != ''"}], "mark": {"type": "text", "angle": 300, "align": "left", "dx": 8, "dy": -4, "color": INK},
         "encoding": {"y": y, "x": x, "text": {"field": "name"}}},
    ]
    drawn = {"data": {"name": "d"}, "width": "container", "height": 170, "description": "A figure over the machines of a group", "layer": layers}
    return drawn, columns, rows


def strip_figure(fleet):
    """A choice for each figure, those with most machines beyond chance first."""
    called = {}
    for d in fleet.rows["deviation"]:
        place = key(d), d.get("group")
        size = abs(number(d.get("sigmas")) or 0)
        n, most = called.get(place, (0, 0))
        called[place] = (n + bool(d.get("called")), max(most, size))
    figures = sorted(fleet.rows["figure"], key=lambda f: tuple(-x for x in called.get((key(f), f.get("group")), (0, 0))))
    names, labels, choices = names_of(figures), machine_names(fleet), []
    for f in figures[:STRIPS_MAX]:
        made = strip(fleet, f, labels)
        if not made:
            continue
        least = number(f.get("least"))
        note = f"{f.get('machines', '?')} machines." + (f" A machine would have been seen from {percent(least)} on." if least else "")
        group = f" ({fleet.group(f.get('group'))})" if len(fleet.rows["group"]) > 1 else ""
        choices.append(Choice(clean(names[key(f)] + group, 160), *made, note))
    if not choices:
        return None
    return Figure("strips", "One figure over the fleet", "Bands hold 98, 90 and 50% of the machines of the group; points are those that are most suspicious, those beyond "
                  "chance by name.", choices, "Figure")


def shift_figure(fleet):
    """Two fleets side by side: each machine beside itself, each figure beside itself over all machines."""
    choices = []
    labels = machine_names(fleet)
    machines = [(labels[str(m.get("name"))], m) for m in fleet.rows["machine_shift"]]
    names = names_of(fleet.rows["figure_shift"])
    figures = [(names[key(f)], f) for f in fleet.rows["figure_shift"]]
    for label, listed in (("machines", machines), ("figures", figures)):
        rows = [{"name": clean(name, 120), "kind": "beyond chance" if r.get("called") else "within it", "y": number(r.get("worse")),
                 "lo": number(r.get("lo")), "hi": number(r.get("hi"))} for name, r in listed if (number(r.get("worse")) or 0) > 0]
        rows = sorted(rows, key=lambda r: -abs(math.log(r["y"])))[:SHIFTS_MAX]
        if not rows:
            continue
        kinds = [k for k in ("beyond chance", "within it") if any(r["kind"] == k for r in rows)]
        columns = [Column("name", label[:-1]), Column("kind", "which"), Column("y", "after over before", "x"), Column("lo", "from", "x"), Column("hi", "to", "x")]
        x = axis("y", "after over before, above 1 is worse", log=True, axis={"format": "~g"})
        choices.append(Choice(label, dots(columns, x, [r["name"] for r in rows], kinds, f"How {label} moved between two fleets", rule=1), columns, rows))
    if not choices:
        return None
    return Figure("shift", "Before and after", "Those that moved most, each over itself in the fleet before.", choices, "Of")


# ---- tables ------------------------------------------------------------------------------------------------------------

def machine_rows(fleet, absent, pages):
    out = []
    for m in fleet.rows["machine"]:
        state = str(m.get("state", "?"))
        if (state in ABSENT) != absent or state == "fits":
            continue
        name = str(m.get("name", "?"))
        out.append({"name": name, "state": state, "tone": STATES.get(state, "warn"), "part": str(m.get("part", "")), "line": str(m.get("line", "")),
                    "figures": m.get("figures") or "", "page": pages.get(name, "")})
    return sorted(out, key=lambda m: m["state"] not in ("wrong", "disagrees"))


def shift_line(s):
    """The shift of a whole fleet in words."""
    interval = f" ({percent(number(s.get('lo')))} to {percent(number(s.get('hi')))})" if number(s.get("lo")) and number(s.get("hi")) else ""
    moved = f": all times and rates {percent(number(s.get('worse')))}{interval}, above 0 is worse" if number(s.get("worse")) else ""
    apart = "".join(f", {s[word]} {word}" for word in ("gone", "added") if s.get(word))
    return f"Beside {s.get('before', '?')}: {s.get('machines', '?')} machines in both{apart}{moved}"


def output_rows(fleet):
    out = []
    for o in fleet.rows["outputs"][:LISTED_MAX]:
        disagree = o.get("disagree") if isinstance(o.get("disagree"), list) else []
        out.append({"case_id": str(o.get("case_id", "?")), "digest": str(o.get("digest", "")), "agree": o.get("agree", ""),
                    "disagree": [{"name": str(d.get("name", "?")), "digest": str(d.get("digest", ""))} for d in disagree[:LISTED_MAX] if isinstance(d, dict)]})
    return out


def group_rows(fleet):
    out = []
    for g in fleet.rows["group"][:GROUPS_MAX]:
        facts = g.get("facts") if isinstance(g.get("facts"), dict) else {}
        differs = []
        for d in g.get("differs") if isinstance(g.get("differs"), list) else []:
            values = d.get("values") if isinstance(d, dict) and isinstance(d.get("values"), list) else []
            differs.append((str(d.get("name", "?")), [(str(v.get("value", "?")), v.get("count", "?"), ", ".join(map(str, v.get("machines", [])[:5]))) for v in values[:8]
                                                      if isinstance(v, dict)]))
        out.append({"name": str(g.get("name", "?")), "machines": g.get("machines", "?"), "differs": differs, "facts": [(k, str(v)) for k, v in facts.items()]})
    return out


def figure_rows(fleet):
    names = names_of(fleet.rows["figure"])
    return [{"name": names[key(f)], "group": fleet.group(f.get("group")), "machines": f.get("machines", ""), "median": quantity(number(f.get("median")), str(f.get("unit", ""))),
             "spread": f"{100 * number(f.get('spread')):.2f}%" if number(f.get("spread")) is not None else "",
             "least": percent(number(f.get("least"))) if number(f.get("least")) and math.isfinite(f["least"]) else ""}
            for f in fleet.rows["figure"][:LISTED_MAX]]


def render_fleet(path, fleet, notes, vega, pages):
    """pages: {machine: address of its own page}"""
    drawn = [f for f in (heat_figure(fleet, pages), shift_figure(fleet), strip_figure(fleet)) if f]
    said = fleet.fleet
    absent, suspicious = machine_rows(fleet, True, pages), machine_rows(fleet, False, pages)
    figures = figure_rows(fleet)
    return fill(
        "fleet.html", vega, drawn, notes,
        title=clean(os.path.basename(os.path.normpath(path)), 80),
        top={"word": str(said.get("verdict", "?")), "line": str(said.get("line", "")), "tone": TONES.get(said.get("exit"), "warn")},
        simulated=simulated(path), shift=[shift_line(s) for s in fleet.rows["shift"]], absent=absent[:LISTED_MAX], absent_left=len(absent) - LISTED_MAX,
        suspicious=suspicious[:LISTED_MAX], suspicious_left=len(suspicious) - LISTED_MAX, outputs=output_rows(fleet),
        groups=group_rows(fleet), listed=figures, listed_left=len(fleet.rows["figure"]) - len(figures))
