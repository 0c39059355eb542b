"""trace.json: one traced step of each case. Where its time went, and its timeline."""

import os

from report.cases import context_text, shape_labels, sides_of, steps_of
from report.charts import Choice, Column, Figure, axis, colour, spec, tips
from report.files import clean, json_file, number, part

CASES_MAX, SPANS_MAX, TIMELINES_MAX = 400, 600, 40
BARS_MAX, PERTURBED = 24, 0.05

# Sets of moments of a step: K kernels of the device (and copies inside it), C copies over the link, P attention on the CPU
PARTS = (("kernel and CPU at once", True, None, True), ("device kernel", True, None, False),
         ("idle device: link and CPU at work", False, True, True), ("idle device: link at work", False, True, False),
         ("idle device: CPU at work", False, False, True), ("nothing runs", False, False, False))
NAMES = [name for name, *_ in PARTS]
KINDS = {"kernel": "device kernel", "d2d": "copy inside the device", "h2d": "link, to the device", "d2h": "link, to the host",
         "wait": "stream waits", "memset": "copy inside the device"}
ORDER = ("device kernel", "copy inside the device", "link, to the device", "link, to the host", "CPU attention", "background, host function",
         "stream waits")


class Span:
    def __init__(self, lane, event):
        self.lane, self.name, self.kind = lane, clean(event.get("name", "?"), 60), kind_of(lane, event)
        self.begin = number(event.get("ts"))
        length = number(event.get("dur"))
        self.end = None if self.begin is None or length is None or length < 0 else self.begin + length
        self.bytes = number(part(event, "args").get("bytes"))


def kind_of(lane, event):
    cat = str(event.get("cat", ""))
    if cat == "cpu":
        return "CPU attention" if lane.startswith("cpu") else "background, host function"
    return KINDS.get(cat, "background, host function")


class Traced:
    """The traced step of a case."""

    def __init__(self, case, spans, length):
        self.case, self.spans, self.length = case, spans, length
        self.lanes = list(dict.fromkeys(s.lane for s in spans))

    def parts(self):
        """How long each of PARTS is, which add up to the step."""
        edges = []
        for s in self.spans:
            which = {"device kernel": 0, "copy inside the device": 0, "link, to the device": 1, "link, to the host": 1, "CPU attention": 2}.get(s.kind)
            begin, end = max(0.0, s.begin), min(self.length, s.end)
            if which is not None and end > begin:
                edges += [(begin, which, 1), (end, which, -1)]
        out, running, at = dict.fromkeys(NAMES, 0.0), [0, 0, 0], 0.0
        for moment, which, step in sorted(edges) + [(self.length, 0, 0)]:
            out[part_of(*(n > 0 for n in running))] += moment - at
            at = moment
            running[which] += step
        return out


def part_of(kernel, link, cpu):
    return next(name for name, k, c, p in PARTS if k == kernel and p == cpu and c in (None, link))


def traced_of(record):
    """Case id -> its traced step, of the first process that has one."""
    path = os.path.join(record.path, "trace.json")
    found = json_file(path, record.notes, path)
    if found is None:
        return {}
    cases, lanes, spans, length = {}, {}, {}, {}
    for event in part(found, "traceEvents", list):
        if not isinstance(event, dict):
            record.notes.add(path, "an event that is no object is left out")
            continue
        pid, tid, name = event.get("pid"), event.get("tid", 0), event.get("name")
        if not isinstance(pid, int) or not isinstance(tid, int):
            continue
        if event.get("ph") == "M" and name == "process_name":
            cases[pid] = str(part(event, "args").get("name", "?"))
        elif event.get("ph") == "M" and name == "thread_name":
            lanes[pid, tid] = clean(part(event, "args").get("name", "?"), 40)
        elif event.get("ph") == "X":
            span = Span(lanes.get((pid, tid), "?"), event)
            if span.end is None:
                record.notes.add(path, "a span without a time, or with a negative one, is left out")
            elif event.get("cat") == "step":
                length[pid] = span.end
            else:
                spans.setdefault(pid, []).append(span)
    out = {}
    for pid, case in cases.items():
        if pid not in length and spans.get(pid):  # as traces were at first
            length[pid] = max(s.end for s in spans[pid])
        if case not in out and length.get(pid, 0) > 0 and len(out) < CASES_MAX:
            out[case] = Traced(case, sorted(spans.get(pid, []), key=lambda s: s.begin), length[pid])
    return out


def traces(folders):
    """(folder's name, Step or None, Traced) of each traced case."""
    out = []
    for folder in folders:
        steps = {s.row["case_id"]: s for s in steps_of(folder.last, folder.label)}
        seen = set()
        for record in folder.last.records:
            for case, traced in traced_of(record).items():
                if case not in seen and steps.get(case):
                    seen.add(case)
                    out.append((folder.label, steps[case], traced))
    return out


def where_figure(found, folders, differ):
    groups = {}
    for side, step, traced in found:
        groups.setdefault((step.shape, step.context), []).append((side, step, traced))
    labels = shape_labels([shape for shape, _ in groups])
    choices = []
    for shares in (True,) if differ else (False, True):
        for (shape, context), group in sorted(groups.items(), key=lambda g: (-sides_of([step for _, step, _ in g[1]]), -len(g[1])))[:BARS_MAX]:
            label = f"{labels[shape]}, context {context_text(context)}"
            choices.append(bars(label + (", as shares" if shares else ""), group, len(folders) > 1, shares))
    if not choices:
        return None
    text = ("One traced step of each case, cut into what ran at each moment: the parts of a bar do not overlap, and add up to the step. "
            "A device that is idle waits for what is named; where nothing runs it is launches, wake-ups and hand-overs. The shares of "
            "several steps are behind the click. ~: with the trace steps took over 5% longer or shorter than without.")
    if differ:
        text += " The machines differ: bars are shares of the step, not times."
    return Figure("where", "Where the time went", text, choices, "Shape")


def bars(label, group, sides, shares):
    names, rows = [], []
    least = {}
    for _, step, traced in group:
        least[step.label] = min(least.get(step.label, traced.length), traced.length)
    group = sorted(group[:BARS_MAX * 2], key=lambda g: (least[g[1].label], g[1].label, g[0]))
    longest = max(traced.length for _, _, traced in group)
    for side, step, traced in group:
        name = step.label + (f" ({side})" if sides else "") + (" ~" if abs(step.figure("perturb") or 0) > PERTURBED else "")
        names.append(name)
        at = 0.0
        parts = traced.parts()
        for part_name in NAMES:
            length = parts[part_name]
            share = length / traced.length
            rows.append({"name": name, "part": part_name, "begin": share_or_time(at, traced.length, shares),
                         "end": share_or_time(at + length, traced.length, shares), "length": length / 1e3, "share": share,
                         "text": f"{share:.0%}", "wide": length / (traced.length if shares else longest), "idle": step.figure("gpu_idle"), "kernel_idle": step.figure("gpu_kernel_idle"),
                         "cpu_idle": step.figure("cpu_idle"), "overlap": step.figure("overlap"), "gap": step.figure("launch_gap_ns"),
                         "middle": share_or_time(at + length / 2, traced.length, shares)})
            at += length
    columns = [Column("name", "variant"), Column("part", "part"), Column("length", "time", "ms"), Column("share", "share of the step", "share"),
               Column("kernel_idle", "no kernel (several steps)", "share"), Column("idle", "idle device (several steps)", "share"),
               Column("cpu_idle", "idle CPU (several steps)", "share"), Column("overlap", "overlap (several steps)", "share"),
               Column("gap", "idle for want of a launch", "ns a step"), Column("begin"), Column("end"), Column("text"), Column("middle"), Column("wide")]
    y = {"field": "name", "type": "nominal", "sort": names, "title": None}
    x = axis("begin", "share of the step" if shares else "time in one traced step (ms)", zero=True,
             **({"axis": {"format": "%"}} if shares else {}))
    present = [n for n in NAMES if any(r["part"] == n and r["length"] > 0 for r in rows)]
    layers = [
        {"mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1, "height": {"band": 0.8}},
         "encoding": {"y": y, "x": x, "x2": {"field": "end"}, "color": {**colour("part", present), "scale": {"domain": present,
                      "range": [PART_COLOURS[n] for n in present]}}, "tooltip": tips(columns[:4])}},
        {"mark": {"type": "text", "fontSize": 10, "color": "black", "clip": True}, "transform": [{"filter": "datum.wide * width > 34"}],
         "encoding": {"y": y, "x": {**x, "field": "middle"}, "text": {"field": "text"}}},
    ]
    return Choice(label, spec(layers, max(60, 26 * len(names)), f"Parts of a step, {label}"), columns, [r for r in rows if r["length"] > 0])


PART_COLOURS = dict(zip(NAMES, ("#009E73", "#56B4E9", "#CC79A7", "#E69F00", "#F0E442", "#B8B8B8")))
KIND_COLOURS = dict(zip(ORDER, ("#56B4E9", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#B8B8B8")))


def share_or_time(us, length, shares):
    return us / length if shares else us / 1e3


def timeline_figure(found):
    ordered = sorted(found, key=lambda f: (-len(f[2].lanes), f[1].variant, f[2].length))
    # one of each variant first: that is what a reader looks for
    first, rest, seen = [], [], set()
    for f in ordered:
        (rest if f[1].variant in seen else first).append(f)
        seen.add(f[1].variant)
    choices = [timeline(*f) for f in (first + rest)[:TIMELINES_MAX] if f[2].spans]
    if not choices:
        return None
    return Figure("timeline", "One step on its way", "A lane for each stream, each way of the link and each CPU thread. A step follows another "
                  "at once, so that what begins before zero was begun in the step before.", choices, "Case")


def timeline(side, step, traced):
    spans = traced.spans[:SPANS_MAX]
    rows = [{"lane": s.lane, "kind": s.kind, "what": s.name, "begin": s.begin / 1e3, "end": s.end / 1e3, "us": s.end - s.begin, "bytes": s.bytes or None}
            for s in spans]
    columns = [Column("lane", "lane"), Column("kind", "kind"), Column("what", "what"), Column("begin", "from", "ms"), Column("end", "to", "ms"),
               Column("us", "for", "us"), Column("bytes", "bytes", "bytes")]
    kinds = [k for k in ORDER if any(r["kind"] == k for r in rows)]
    tone = {**colour("kind", kinds), "scale": {"domain": kinds, "range": [KIND_COLOURS[k] for k in kinds]}}
    layers = [{"mark": {"type": "bar", "height": {"band": 0.72}, "stroke": None, "minBandSize": 2},
               "encoding": {"y": {"field": "lane", "type": "nominal", "sort": traced.lanes, "title": None, "axis": {"grid": True, "gridDash": [1, 3]}},
                            "x": axis("begin", "ms", zero=True), "x2": {"field": "end"}, "color": tone, "tooltip": tips(columns)}}]
    layers.append({"mark": {"type": "tick", "thickness": 1.5, "height": 18}, "transform": [{"filter": f"datum.us < {traced.length / 400:.9g}"}],
                   "encoding": {"y": layers[0]["encoding"]["y"], "x": layers[0]["encoding"]["x"], "color": tone, "tooltip": tips(columns)}})
    note = f"The first {SPANS_MAX} of {len(traced.spans)} spans." if len(traced.spans) > SPANS_MAX else ""
    return Choice(f"{side + ': ' if side else ''}{step.row['case_id'][:140]}", spec(layers, max(60, 30 * len(traced.lanes)), f"Timeline of a step of {step.label}"),
                  columns, rows, note)
