"""Figures in Vega-Lite. A figure has one choice or several, each a specification whose data are rows of its own table: what is
drawn is what the table behind the click shows. Colours are those of Okabe and Ito that stand out on white and on black;
marks or dashes differ, too."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8A8A8A")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
SERIES_MAX, KINDS_MAX, CHOICES_MAX = 14, 8, 80
POINTS_MAX, ALL_POINTS_MAX = 4000, 8000  # of a plot; of all plots of a figure
INK = "currentColor"


class Column:
    """Of a choice's table. key: the field in the specification; title "": it is not shown."""

    def __init__(self, key, title="", unit=""):
        self.key, self.title, self.unit = key, title, unit


class Choice:
    def __init__(self, label, spec, columns, rows, note=""):
        self.label, self.spec, self.columns, self.note = label, spec, columns, note
        self.rows = rows[:POINTS_MAX]
        if len(rows) > POINTS_MAX:
            self.note = f"{note} The first {POINTS_MAX:,} of {len(rows):,} points.".strip()

    def as_json(self):
        return {"label": self.label, "spec": self.spec, "note": self.note,
                "columns": [[c.key, c.title, c.unit] for c in self.columns],
                "rows": [[rounded(row.get(c.key)) for c in self.columns] for row in self.rows]}


class Figure:
    def __init__(self, name, title, text, choices, choose="Shown"):
        self.name, self.title, self.text, self.choose = name, title, text, choose
        self.choices = self.room_for(choices)
        if len(self.choices) < len(choices):
            self.text += f" {len(self.choices)} of {len(choices):,} plots are here: there is no room for more."

    def room_for(self, choices):
        """The first of them, as many as a page has room for."""
        kept, points = [], 0
        for choice in choices[:CHOICES_MAX]:
            points += len(choice.rows)
            if kept and points > ALL_POINTS_MAX:
                break
            kept.append(choice)
        return kept

    def as_json(self):
        return {"name": self.name, "title": self.title, "choose": self.choose, "choices": [c.as_json() for c in self.choices]}


def rounded(x):
    return float(f"{x:.6g}") if isinstance(x, float) else x


def in_turn(values, count):
    return [values[i % len(values)] for i in range(count)]


def legend(title):
    return {"title": title, "orient": "bottom", "direction": "horizontal"}


def colour(field, domain, title=None):
    return {"field": field, "type": "nominal", "scale": {"domain": domain, "range": in_turn(COLOURS, len(domain))},
            "legend": legend(title) if len(domain) > 1 else None}


def shape(field, domain, title=None):
    """Of the same length of domain as COLOURS is not: so colour and shape together tell 56 series apart."""
    return {"field": field, "type": "nominal", "scale": {"domain": domain, "range": in_turn(SHAPES, len(domain))},
            "legend": legend(title) if len(domain) > 1 else None}


def dash(field, domain, title=None):
    return {"field": field, "type": "nominal", "scale": {"domain": domain, "range": in_turn(DASHES, len(domain))},
            "legend": legend(title) if len(domain) > 1 else None}


def axis(field, title, log=False, base=10, zero=False, **more):
    scale = {"type": "log", "base": base, "nice": False, "padding": 12} if log else {"zero": zero, "nice": True}
    if log:
        more["axis"] = {"tickCount": 6, **more.get("axis", {})}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


def sizes(field, title, values):
    """An axis of powers of two and what lies between: 4K, 1900."""
    label = ("datum.value >= 1048576 && datum.value % 1048576 == 0 ? datum.value / 1048576 + 'M' : "
             "datum.value >= 1024 && datum.value % 1024 == 0 ? datum.value / 1024 + 'K' : datum.value")
    return axis(field, title, log=True, base=2, axis={"values": sorted(set(values)), "labelExpr": label, "labelOverlap": "greedy", "tickCount": 30})


def tips(columns):
    """What is shown of the mark under a pointer."""
    return [{"field": c.key, "title": c.title + (f" ({c.unit})" if c.unit else ""),
             **({"type": "quantitative", "format": ".4~g"} if c.unit else {"type": "nominal"})}
            for c in columns if c.title]


def spec(layers, height, description, encoding=None):
    out = {"data": {"name": "d"}, "width": "container", "height": height, "description": description, "layer": layers}
    if encoding:
        out["encoding"] = encoding
    return out


def lines(columns, x, y, series, description, sides=(), rule=None):
    """Lines with intervals (fields lo, hi) of fields x, y, series; side: a dash for each."""
    marked = {"color": colour("series", series), "tooltip": tips(columns)}
    drawn = {"color": colour("series", series), "strokeDash": dash("side", list(sides), "folder") if len(sides) > 1
             else {**dash("series", series), "scale": {"domain": series, "range": [DASHES[(i // len(COLOURS)) % len(DASHES)] for i in range(len(series))]}}}
    layers = [
        {"mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.8}, "transform": [{"filter": "isValid(datum.lo)"}],
         "encoding": {"color": colour("series", series), "y": {**y, "field": "lo"}, "y2": {"field": "hi"}, "x": x}},
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {**drawn, "x": x, "y": y, "detail": {"field": "side"}}},
        {"mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
         "encoding": {**marked, "shape": shape("series", series), "x": x, "y": y}},
    ]
    if rule:
        layers.insert(0, {"mark": {"type": "rule", "strokeDash": [4, 4], "color": INK, "opacity": 0.7},
                          "encoding": {"y": {"aggregate": "median", **{**y, "field": rule}},
                                       **({"strokeDash": dash("side", list(sides), "folder")} if len(sides) > 1 else {})}})
    return spec(layers, 320, description)


def dots(columns, x, names, kinds, description, kind_title=None, rule=None, step=22):
    """A line of dots with intervals for each name (field `name`), coloured by field `kind`."""
    y = {"field": "name", "type": "nominal", "sort": names, "title": None, "axis": {"grid": True, "gridDash": [1, 3]}}
    offset = {"yOffset": {"field": "kind", "type": "nominal", "sort": kinds}} if 1 < len(kinds) <= 4 else {}
    tone = colour("kind", kinds, kind_title)
    layers = [
        {"mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.8}, "transform": [{"filter": "isValid(datum.lo)"}],
         "encoding": {"y": y, **offset, "x": {**x, "field": "lo"}, "x2": {"field": "hi"}, "color": tone}},
        {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
         "encoding": {"y": y, **offset, "x": x, "color": tone, "shape": shape("kind", kinds, kind_title), "tooltip": tips(columns)}},
    ]
    if rule is not None:
        layers.insert(0, {"data": {"values": [{"at": rule}]}, "mark": {"type": "rule", "strokeDash": [4, 4], "color": INK},
                          "encoding": {"x": {"field": "at", "type": "quantitative"}}})
    each = step * (1 if len(offset) == 0 else max(1, 0.55 * len(kinds)))
    return spec(layers, max(60, round(each * len(names))), description)
