"""The page: what is on top in words and tables, then the figures, then the scripts that draw them."""

import base64
import hashlib
import json
import os

import jinja2
import markupsafe

from report.charts import Choice, Column, Figure, axis, colour, shape, spec, tips, INK
from report.compared import ORDER
from report.cases import short_names
from report.files import clean, number
from report.gallery import galleries, gallery_figure, merge_figure
from report.history import history_figures
from report.kernels import kernels_figure
from report.link import link_figure
from report.machine import ceilings_figure, facts
from report.record import SUITES, VERDICTS
from report.sides import SHOWN, side_means, side_rows
from report.steps import quality_figure, time_figure
from report.text import percent, quantity
from report.trace import timeline_figure, traces, where_figure

HERE = os.path.dirname(os.path.abspath(__file__))
CHANGES_SHOWN, CHANGES_LISTED, BAD_LISTED, GALLERY_LISTED, NOTES_LISTED, FOREST_MAX = 20, 500, 60, 400, 40, 40
TONES = {0: "good", 10: "bad", 30: "bad", 20: "warn", 40: "warn"}
WORDS = {"wrong": "bad", "other bits": "bad", "slower": "bad", "worse": "bad", "other result": "bad", "not judged": "bad", "gone": "bad", "waived": "warn", "disturbed": "warn",
         "suspicious": "warn", "unclear": "warn", "added": "plain", "better": "good", "faster": "good", "perhaps better": "good",
         "perhaps faster": "good", "same": "plain"}
SECTIONS = (("Time of a step", "no case of a variant was measured"), ("Where the time went", "there is no traced step (trace.json)"),
            ("Quality against speed", "fewer than three variants of one shape were judged and measured"),
            ("Kernels against their ceiling", "cpu_kernels was not run"), ("The link by size of the pieces", "link was not run"),
            ("History", "there are not two nights of one machine"), ("Merges of attention states", "lse_merge was not run"),
            ("Planted defects", "neither a gallery nor --mutants was run"), ("What the machine has", "env.json has no ceilings"))


def others_in(folders, compared):
    """Are there different machines? As compare says, or else by what the records say of their CPU and devices."""
    if compared.verdicts:
        return bool(compared.sides) or any(row.get("kind") == "machine" for row in compared.environment)
    return any(folders[0].last.machine() != f.last.machine() for f in folders[1:])


def label(folders):
    """What a folder is called: nothing where it is alone, its name, or its path where names are the same."""
    names = [f.name for f in folders]
    for f in folders:
        f.label = "" if len(folders) == 1 else clean(f.name if names.count(f.name) == 1 else f.path, 40)


def figures(folders, compared, others):
    found = traces(folders)
    planted = galleries(folders)
    made = [forest(compared), time_figure(folders, others), where_figure(found, folders, others), timeline_figure(found),
            quality_figure(folders, others), kernels_figure(folders), link_figure(folders, others), *history_figures(folders, compared),
            merge_figure(folders), gallery_figure(planted), ceilings_figure(folders)]
    return [f for f in made if f], planted


def forest(compared):
    """What changed, as ratios with their intervals."""
    rows, moved = [], compared.moved()
    names = short_names([str(c.get("case_id", "?")) for c in moved])
    for c in moved:
        ratio, lo, hi = number(c.get("ratio")), number(c.get("lo")), number(c.get("hi"))
        if ratio is None or ratio <= 0 or not 1e-6 < ratio < 1e6:
            continue
        name = f"{names[str(c.get('case_id', '?'))]} {c.get('figure', '?')}" + (f" ({compared.of(c)})" if compared.of(c) else "")
        part = number(c.get("part_ratio"))
        rows.append({"name": name, "kind": c["change"], "y": ratio, "lo": lo if lo and hi else None, "hi": hi if lo and hi else None,
                     "by": str(c.get("by", "")), "part": str(c.get("part", "")), "part_ratio": part if part and part > 0 else None, "least": number(c.get("least"))})
        if len(rows) == FOREST_MAX:
            break
    if not rows:
        return None
    kinds = [w for w in ORDER if any(r["kind"] == w for r in rows)] + sorted({r["kind"] for r in rows} - set(ORDER))
    columns = [Column("name", "figure"), Column("kind", "change"), Column("y", "ratio", "x"), Column("lo", "from", "x"), Column("hi", "to", "x"),
               Column("by", "by"), Column("part", "part of the machine"), Column("part_ratio", "its ratio", "x"), Column("least", "least that could be seen", "x")]
    y = {"field": "name", "type": "nominal", "sort": [r["name"] for r in rows], "title": None, "axis": {"grid": True, "gridDash": [1, 3]}}
    x = axis("y", "new over base (1: no change)", log=True, axis={"format": "~g"})
    tone = colour("kind", kinds)
    layers = [
        {"data": {"values": [{"at": 1}]}, "mark": {"type": "rule", "color": INK, "strokeDash": [4, 4]},
         "encoding": {"x": {"field": "at", "type": "quantitative"}}},
        {"mark": {"type": "rule", "strokeWidth": 2}, "transform": [{"filter": "isValid(datum.lo)"}],
         "encoding": {"y": y, "x": {**x, "field": "lo"}, "x2": {"field": "hi"}, "color": tone}},
        {"mark": {"type": "tick", "thickness": 2, "size": 14, "color": INK}, "transform": [{"filter": "isValid(datum.part_ratio)"}],
         "encoding": {"y": y, "x": {**x, "field": "part_ratio"}}},
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
         "encoding": {"y": y, "x": x, "color": tone, "shape": shape("kind", kinds), "tooltip": tips(columns)}},
    ]
    return Figure("forest", "How much", "Each figure that changed, new over base, with its interval; an upright tick is how the part of the machine moved that it "
                  "stands beside.", [Choice("all", spec(layers, max(60, 22 * len(rows)), "Ratios of what changed"), columns, rows)])


def interval(c):
    """Of a change; of a share, whose ratio is (1 + new) / (1 + base), in points."""
    lo, hi, base = (number(c.get(k)) for k in ("lo", "hi", "base"))
    if not lo or not hi:
        return ""
    if c.get("unit") or base is None:
        return f"{percent(lo)} to {percent(hi)}"
    return f"{(lo - 1) * (1 + base) * 100:+.1f} to {(hi - 1) * (1 + base) * 100:+.1f} points"


def change_rows(compared):
    out = []
    for c in compared.moved()[:CHANGES_LISTED]:
        least = number(c.get("least"))
        unit = str(c.get("unit", ""))
        out.append({"word": c["change"], "tone": WORDS.get(c["change"], "warn"), "line": c.get("line") or f"{c.get('figure', '')} {c.get('case_id', '')}",
                    "interval": interval(c),
                    "by": str(c.get("by", "")), "part": str(c.get("part", "")), "least": percent(least).lstrip("+") if least else "",
                    "base": quantity(number(c.get("base")), unit), "value": quantity(number(c.get("value")), unit),
                    "new": compared.of(c)})
    return out


def top(folders, compared):
    """The verdict: compare's where there is one, else what the records say of themselves."""
    if compared.verdict:
        v = compared.verdict
        said, word, tone = str(v.get("line", "")), str(v.get("verdict", "?")), TONES.get(v.get("exit"), "warn")
        faster = [m["line"] for m in side_means(compared) if m["of"] == "all" and m["line"]]
        if faster and not v.get("exit"):
            word, tone = "side by side", "plain"  # of two machines none is right
            said = "; ".join(faster)
        return {"word": word, "line": said, "tone": tone,
                "each": [(compared.of(row), str(row.get("line", ""))) for row in compared.verdicts] if len(compared.verdicts) > 1 else []}
    count = dict.fromkeys(VERDICTS, 0)
    for folder in folders:
        for record in folder.last.records:
            for word, n in record.verdicts().items():
                count[word] += n
    total = sum(count.values())
    said = ", ".join(f"{n:,} {word}" for word, n in (("passed", count["pass"] + count["suspect"]), ("wrong", count["fail"]), ("not judged", count["error"]),
                                                     ("suspect", count["suspect"]), ("waived", count["waived"]), ("unchecked", count["unchecked"])) if n)
    for word, key, tone in (("wrong", "fail", "bad"), ("not judged", "error", "warn"), ("suspect", "suspect", "warn")):
        if count[key]:
            return {"word": word, "line": f"Of {total:,} cases: {said}.", "tone": tone, "each": []}
    if not total:
        return {"word": "no cases", "line": "These folders hold no row of a case.", "tone": "warn", "each": []}
    if not count["pass"]:
        return {"word": "nothing passed", "line": f"Of {total:,} cases: {said}.", "tone": "warn", "each": []}
    return {"word": "right", "line": f"No case is wrong. Of {total:,} cases: {said}.", "tone": "good", "each": []}


def bad_cases(folders):
    rank, out = {"fail": 0, "error": 1, "suspect": 2}, []
    for folder in folders:
        for record in folder.last.records:
            for name in SUITES:
                for row in record.table(name):
                    if row.get("verdict") in rank:
                        out.append({"side": folder.label, "verdict": row["verdict"], "tone": "bad" if row["verdict"] == "fail" else "warn",
                                    "case": clean(row["case_id"]), "reason": clean(row.get("reason", ""), 300)})
    return sorted(out, key=lambda r: rank[r["verdict"]])


def record_rows(folders):
    out = []
    for folder in folders:
        count = dict.fromkeys(VERDICTS, 0)
        for record in folder.last.records:
            for word, n in record.verdicts().items():
                count[word] += n
        out.append({"name": clean(folder.path, 80), "run": folder.last.name if len(folder.runs) > 1 else "", "nights": len(folder.runs),
                    "date": folder.last.date, "cpu": clean(folder.last.env.get("cpu") or "?", 60), "build": clean(folder.last.env.get("build") or "?", 20),
                    "counts": [(word, n) for word, n in count.items() if n]})
    return out


def in_script(data):
    """JSON that no HTML parser takes for markup."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def breaks(text):
    """The text, escaped, with places where a line may break behind commas."""
    return markupsafe.Markup("<wbr>").join(piece + "," for piece in str(text).split(","))[:-1]


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def digest(script):
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


def fill(name, vega, figures, notes, **said):
    """The page of a template, which stands within base.html, with the scripts that draw its figures."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["breaks"] = breaks
    draw, lines = read("page.js"), notes.texts()
    return environment.get_template(name).render(
        figures=figures, data=in_script([f.as_json() for f in figures]), notes=lines[:NOTES_LISTED], notes_left=len(lines) - NOTES_LISTED,
        style=read("style.css"), vega=vega, draw=draw, hashes=f"{digest(vega)} {digest(draw)}", **said)


def render(folders, compared, notes, vega):
    others = others_in(folders, compared)
    sides, all_sides = side_rows(compared)
    drawn, planted = figures(folders, compared, others)
    have = [f.title for f in drawn]
    missing = [(title, why) for title, why in SECTIONS if not any(t.startswith(title) for t in have)]
    machines = [len({r.machine() for r in f.runs}) for f in folders]
    for f, n in zip(folders, machines):
        if n > 1:
            notes.add(f.path, f"nights of {n} machines are mixed here: each has its own history, the rest is of the newest night")
    changes, bad = change_rows(compared), bad_cases(folders)
    return fill(
        "page.html", vega, drawn, notes,
        title=", ".join(f.name for f in folders[:3]) + (f" and {len(folders) - 3} more" if len(folders) > 3 else ""), top=top(folders, compared),
        compared=compared, side_by_side=sides, sides_shown=SHOWN, sides_left=all_sides - len(sides), means=side_means(compared), changes=changes, changes_shown=CHANGES_SHOWN, changes_left=len(compared.moved()) - len(changes),
        environment=compared.environment, others=others, records=record_rows(folders), bad=bad[:BAD_LISTED], bad_left=len(bad) - BAD_LISTED,
        missing=missing, planted=planted[:GALLERY_LISTED], planted_left=len(planted) - GALLERY_LISTED, facts=facts(folders),
        sides=[f.label or f.name for f in folders])
