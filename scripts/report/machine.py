"""env.json: the machines, side by side, and their ceilings."""

from report.charts import KINDS_MAX, Choice, Column, Figure, axis, dots
from report.files import clean, number, part
from report.text import quantity

ROWS_MAX = 100
FACTS = ("cpu", "sockets", "cores", "memory_bytes", "numa_nodes", "gpus", "cpu_clock_max_MHz", "isa", "plan", "kernel", "libc", "governor", "huge_pages", "compiler", "build", "mode")
DEVICE = ("kind", "name", "driver_version", "memory_bytes", "compute_threads", "built_with", "spans", "link_gen", "link_width")


def words(key, value):
    if value is None or value == "":
        return "-"
    if key.endswith("_bytes") and number(value) is not None:
        return quantity(number(value), "bytes")
    return clean(value, 120) if isinstance(value, (str, int, float)) else "-"


def apart(key, values):
    """Do they differ? What a kernel leaves of the same memory varies, and threads of a device are a count of the moment."""
    sizes = [number(v) for v in values]
    if key == "memory_bytes" and all(sizes):
        return max(sizes) - min(sizes) > 0.02 * max(sizes)
    return key != "compute_threads" and len({words(key, v) for v in values}) > 1


def facts(folders):
    """(name, a text for each folder, whether they differ)"""
    out = []
    envs = [f.last.env for f in folders]
    for key in FACTS:
        texts = [words(key, env.get(key)) for env in envs]
        if any(t != "-" for t in texts):
            out.append((key.replace("_", " "), texts, apart(key, [env.get(key) for env in envs])))
    devices = [devices_of(f) for f in folders]
    for kind in dict.fromkeys(k for d in devices for k in d):
        for key in DEVICE:
            texts = [words(key, d[kind].get(key)) if kind in d else "-" for d in devices]
            if any(t != "-" for t in texts):
                out.append((f"device {clean(kind, 40)}: {key.replace('_', ' ')}", texts, apart(key, [d[kind].get(key) if kind in d else None for d in devices])))
    out.append(("begun", [f.last.date or "-" for f in folders], False))
    out.append(("command", [clean(commands(f), 300) for f in folders], False))
    return out


def commands(folder):
    found = [str(r.get("command", "")) for record in folder.last.records for r in part(record.env, "runs", list) if isinstance(r, dict)]
    return "; ".join(filter(None, found)) or "-"


def devices_of(folder):
    out = {}
    for record in folder.last.records:
        for device in part(record.env, "devices", list):
            if isinstance(device, dict):
                out.setdefault(str(device.get("asked", "?")), device)
    return out


def ceilings_figure(folders):
    rows = []
    for folder in folders:
        for name, device in devices_of(folder).items():
            for what, c in part(device, "ceilings").items():
                value = number(c.get("median")) if isinstance(c, dict) else None
                if value is None:
                    continue
                rows.append({"name": clean(what, 60), "kind": clean(f"{folder.label} {name}".strip(), 60), "y": value, "lo": number(c.get("lo")), "hi": number(c.get("hi")),
                             "unit": clean(c.get("unit", ""), 20), "samples": number(c.get("samples"))})
    choices = []
    for unit in list(dict.fromkeys(r["unit"] for r in rows))[:KINDS_MAX]:
        these = [r for r in rows if r["unit"] == unit and r["y"] > 0][:ROWS_MAX]
        if not these:
            continue
        for r in these:
            r["lo"], r["hi"] = (r["lo"], r["hi"]) if r["lo"] and r["hi"] and r["lo"] > 0 else (None, None)
        names, kinds = list(dict.fromkeys(r["name"] for r in these)), list(dict.fromkeys(r["kind"] for r in these))
        columns = [Column("name", "ceiling"), Column("kind", "machine"), Column("y", "median", unit), Column("lo", "from", unit), Column("hi", "to", unit),
                   Column("samples", "samples", "samples")]
        x = axis("y", f"{unit} ({'less' if unit == 'ns' else 'more'} is better)", log=unit != "GB/s", zero=unit == "GB/s", axis={"format": "~s"})
        choices.append(Choice(unit, dots(columns, x, names, kinds, f"Ceilings of the machine in {unit}", "machine"), columns, these))
    if not choices:
        return None
    return Figure("ceilings", "What the machine has", "Ceilings as they were probed in the run, each the median of its samples with their 95% interval.", choices, "Unit")
