"""A figure over nights. Values alone are stored for each figure; the page makes the rows of the one that is shown."""

import os

from report.charts import INK, Column, Figure, axis, spec, tips
from report.compared import ORDER as RANKS, rank
from report.files import clean, median, number, rows
from report.machine import words

SERIES_MAX, KEYS_MAX, ROWS_MAX, LABEL_MAX = 3000, 20_000, 4_000_000, 110
ALSO = {"err_over_bound", "rel_l2"}  # figures that are neither better nor worse, and still followed
FIRST = ("step_ns", "ns", "GBps", "err_over_bound")
UNITS = {"ns": (1e6, "ms"), "bytes": (1e6, "MB")}
ENVIRONMENT = ("build", "cpu", "kernel", "governor", "huge_pages", "isa", "plan", "compiler", "libc", "memory_bytes")
POOLED = {"run", "again"}  # records of a night that hold more processes of the same cases


class Series:
    def __init__(self, case, figure, unit, better):
        self.case, self.figure, self.unit, self.better = case, figure, unit, better
        self.values = {}  # night -> (median, lo, hi)
        self.marks = {}  # night -> what compare called it

    def order(self):
        return (min(map(rank, self.marks.values()), default=len(RANKS)), FIRST.index(self.figure) if self.figure in FIRST else len(FIRST), self.case, self.figure)


def figures_of(run):
    """(case, figure) -> [unit, better, [(value, lo, hi) of each process]]"""
    out, owner = {}, {}
    for record in run.records:
        name = os.path.basename(record.path)
        for row in rows(record.where("figures.csv"), record.notes, record.where("figures.csv"), ROWS_MAX):
            better, figure = row.get("better"), row.get("figure", "")
            if better not in ("less", "more") and figure not in ALSO:
                continue
            key = row["case_id"], figure
            if len(out) >= KEYS_MAX and key not in out:
                record.notes.add(record.where("figures.csv"), f"has more than {KEYS_MAX:,} figures: the first are followed; `habench report --format csv` has all")
                break
            mine = owner.setdefault(key, name)
            if mine != name and not {mine, name} <= POOLED:
                continue
            value = number(row.get("value"))
            if value is None:
                if row.get("value"):
                    record.notes.add(record.where("figures.csv"), "a value that is no number is left out")
                continue
            if value < 0 and row.get("unit") == "ns":
                record.notes.add(record.where("figures.csv"), "a negative time is left out")
                continue
            entry = out.setdefault(key, [row.get("unit", ""), better, []])
            entry[2].append((value, number(row.get("lo")), number(row.get("hi"))))
    return out


def gathered(processes):
    if len(processes) == 1:
        return processes[0]
    values = [p[0] for p in processes]
    return median(values), min(values), max(values)


def series_of(runs):
    found = {}
    for night, run in enumerate(runs):
        for (case, figure), (unit, better, processes) in figures_of(run).items():
            series = found.setdefault((case, figure), Series(case, figure, unit, better))
            series.values[night] = gathered(processes)
    return {key: s for key, s in found.items() if len(s.values) > 1}


def mark(series, runs, compared):
    """What compare said of a night stands at its point."""
    names = {}
    for record in compared.records:
        if record.get("side") == "new":
            path = os.path.abspath(str(record.get("path", "")))
            names[record.get("index")] = [n for n, run in enumerate(runs)
                                          if os.path.abspath(run.path) == path or any(os.path.abspath(r.path) == path for r in run.records)]
    for change in compared.moved():  # the worst first
        s = series.get((change.get("case_id"), change.get("figure")))
        for night in names.get(change.get("new"), []) if s else []:
            s.marks.setdefault(night, change["change"])


def events(runs):
    """What of the environment is another than in the night before."""
    out = [""]
    for before, now in zip(runs, runs[1:]):
        changed = [f"{key} {words(key, before.env.get(key))} -> {words(key, now.env.get(key))}" for key in ENVIRONMENT
                   if words(key, before.env.get(key)) != words(key, now.env.get(key))]
        out.append(clean("; ".join(changed), 200))
    return out


class History(Figure):
    def __init__(self, name, title, text, runs, series):
        super().__init__(name, title, text, [], "Figure")
        self.choices = series
        self.runs = runs

    def as_json(self):
        columns = [Column("night", "night"), Column("date", "begun"), Column("build", "build"), Column("event", "what else changed"), Column("n"),
                   Column("y", "@y", "@unit"), Column("lo", "from", "@unit"), Column("hi", "to", "@unit"), Column("mark", "compare says")]
        nights = [[run.name[:40], run.date[:16], clean(run.env.get("build") or "?", 16), event, i]
                  for i, (run, event) in enumerate(zip(self.runs, events(self.runs)))]
        return {"name": self.name, "title": self.title, "choose": self.choose, "nights": nights, "spec": history_spec(columns),
                "columns": [[c.key, c.title, c.unit] for c in columns], "choices": [compact(s, len(nights)) for s in self.choices]}


def compact(series, nights):
    size, unit = UNITS.get(series.unit, (1, series.unit))
    found = [series.values.get(n, (None, None, None)) for n in range(nights)]
    out = {"label": clean(f"{series.figure}  {series.case}", LABEL_MAX), "title": clean(series.figure, 40), "unit": clean(unit, 20) or "1", "better": series.better,
           "y": [short(v[0], size) for v in found]}
    if any(v[1] is not None and v[2] is not None for v in found):
        out["lo"], out["hi"] = [short(v[1], size) for v in found], [short(v[2], size) for v in found]
    if series.marks:
        out["marks"] = {str(n): clean(word, 30) for n, word in series.marks.items()}
    return out


def short(x, size):
    return None if x is None else float(f"{x / size:.5g}")


def history_spec(columns):
    x = {"field": "night", "type": "ordinal", "sort": {"field": "n"}, "title": None, "axis": {"labelAngle": -40, "labelOverlap": "greedy", "labelLimit": 90}}
    y = axis("y", "@y (@unit)", scale={"zero": False, "nice": True})
    layers = [
        {"mark": {"type": "rule", "strokeDash": [2, 3], "color": INK, "opacity": 0.55}, "transform": [{"filter": "datum.event != ''"}],
         "encoding": {"x": x, "tooltip": [{"field": "event", "title": "changed"}]}},
        {"mark": {"type": "rule", "strokeWidth": 1.5, "color": "#0072B2", "opacity": 0.7}, "transform": [{"filter": "isValid(datum.lo)"}],
         "encoding": {"x": x, "y": {**y, "field": "lo"}, "y2": {"field": "hi"}}},
        {"mark": {"type": "line", "strokeWidth": 1.2, "color": "#0072B2"}, "transform": [{"filter": "isValid(datum.y)"}], "encoding": {"x": x, "y": y}},
        {"mark": {"type": "point", "filled": True, "size": 40, "color": "#0072B2", "opacity": 1}, "transform": [{"filter": "isValid(datum.y)"}],
         "encoding": {"x": x, "y": y, "tooltip": tips([c for c in columns if c.title and c.key != "y"]) + [{"field": "y", "title": "value", "format": ".5~g"}]}},
        {"mark": {"type": "point", "shape": "diamond", "size": 220, "strokeWidth": 2.5, "color": "#D55E00"}, "transform": [{"filter": "datum.mark != ''"}],
         "encoding": {"x": x, "y": y}},
        {"mark": {"type": "text", "dy": -16, "fontWeight": "bold", "color": INK}, "transform": [{"filter": "datum.mark != ''"}],
         "encoding": {"x": x, "y": y, "text": {"field": "mark"}}},
    ]
    return spec(layers, 300, "A figure over nights")


def groups(folders):
    """Runs that are a history: those of a folder of nights, by machine; else three and more records of one machine."""
    found = []
    for folder in folders:
        by_machine = {}
        for run in folder.runs:
            by_machine.setdefault(run.machine(), []).append(run)
        found += [(folder.label or folder.name, machine, runs) for machine, runs in by_machine.items() if len(runs) > 1]
    if found or len(folders) < 3:
        return found
    by_machine = {}
    for folder in folders:
        by_machine.setdefault(folder.last.machine(), []).append(folder.last)
    return [("records", machine, sorted(runs, key=lambda r: (r.date, r.name))) for machine, runs in by_machine.items() if len(runs) > 2]


def history_figures(folders, compared):
    out, found = [], groups(folders)
    for i, (name, machine, runs) in enumerate(found[:6]):
        series = series_of(runs)
        mark(series, runs, compared)
        ordered = sorted(series.values(), key=Series.order)
        if not ordered:
            continue
        text = (f"{len(runs)} nights of {machine[0]}. Each point is the median of its processes. A diamond is what compare found; a dotted line is a night "
                "from which on something else of the environment is different (under the pointer, and in the data).")
        if len(ordered) > SERIES_MAX:
            text += f" {SERIES_MAX:,} of {len(ordered):,} figures are here; `habench report --format csv` has all."
        title = "History" + (f": {name}" if len(found) > 1 else "")
        if len({g[0] for g in found}) < len(found):
            title += f" ({machine[0]})"
        out.append(History(f"history{i}", title, text, runs, ordered[:SERIES_MAX]))
    return out
