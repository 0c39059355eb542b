"""Folders: a record (`-o DIR`), a night (records as subfolders) and a folder of nights are all read as runs, each of which is
one or several records of the same time."""

import os

from report.files import clean, json_file, part, rows

SUITES = ("cases.csv", "link.csv", "cpu_kernels.csv", "lse_merge.csv", "device.csv", "mutants.csv", "defects.csv")
VERDICTS = ("pass", "fail", "error", "suspect", "unchecked", "waived")
NIGHT = ("run", "again", "check", "probe")  # records of a night; the first that has a file is what a figure is taken from
DEPTH = 3


class Record:
    def __init__(self, path, notes, env):
        self.path, self.notes, self.env = path, notes, env
        self.tables = {}

    def where(self, name):
        return os.path.join(self.path, name)

    def table(self, name):
        """The rows of one of SUITES; a case that is there twice, with the same process, counts once."""
        if name not in self.tables:
            seen, found = set(), []
            for row in rows(self.where(name), self.notes, self.where(name)):
                key = row["case_id"], row.get("process", ""), row.get("section", "")
                if key in seen:
                    self.notes.add(self.where(name), "a case is there twice: its first row counts")
                    continue
                seen.add(key)
                found.append(row)
            self.tables[name] = found
        return self.tables[name]

    def verdicts(self):
        count = dict.fromkeys(VERDICTS, 0)
        for name in SUITES:
            for row in self.table(name):
                if row.get("verdict") in count:
                    count[row["verdict"]] += 1
        return count


class Run:
    """Records of one time: a night, or one record alone."""

    def __init__(self, path, records, night):
        self.path, self.records, self.night = path, records, night
        self.name = os.path.basename(os.path.abspath(path)) or path
        self.date = min((r for r in map(date_of, records) if r), default="")

    @property
    def env(self):
        return self.records[0].env

    def table(self, name):
        """Rows of all records, each case from the first record that has it."""
        found, seen = [], set()
        for record in self.records:
            here = record.table(name)
            found += [row for row in here if row["case_id"] not in seen]
            seen |= {row["case_id"] for row in here}
        return found

    def machine(self):
        """What makes it this machine and no other."""
        devices = [d for r in self.records for d in part(r.env, "devices", list) if isinstance(d, dict)]
        who = part(self.env, "identity")
        return (clean(self.env.get("cpu") or "?"), clean(who.get("board") or who.get("machine_id") or who.get("host") or ""),
                tuple(sorted({(clean(d.get("kind") or "?"), clean(d.get("name") or "?")) for d in devices})))


class Folder:
    """What the command line names: runs from the oldest to the newest."""

    def __init__(self, path, runs):
        self.path, self.runs = path, sorted(runs, key=lambda r: (r.date, r.name))
        self.name = os.path.basename(os.path.abspath(path)) or path

    @property
    def last(self):
        return self.runs[-1]


def date_of(record):
    runs = part(record.env, "runs", list)
    first = runs[0].get("date_utc") if runs and isinstance(runs[0], dict) else record.env.get("date_utc")
    return clean(first, 30) if isinstance(first, str) else ""


def record_of(path, notes):
    file = os.path.join(path, "env.json")
    if not os.path.isfile(file):
        return None
    env = json_file(file, notes, file)
    if env is None:
        env = {}
    elif env.get("schema_version") not in (None, 1, 2):
        notes.add(file, f"has schema version {clean(env.get('schema_version'), 20)}, which this program does not know")
    return Record(path, notes, renewed(env) if env.get("schema_version") == 1 else env)


def renewed(env):
    """An env.json of schema version 1, which knew one run and one device, as one of version 2."""
    device = {**part(env, "device"), "ceilings": part(env, "ceilings")}
    device.setdefault("asked", device.get("kind", "?"))
    return {**env, "build": env.get("version"), "devices": [device] if part(env, "device") else [],
            "runs": [{"date_utc": env.get("date_utc"), "command": env.get("command")}]}


def folders_in(path, notes):
    try:
        with os.scandir(path) as found:
            return sorted(e.path for e in found if e.is_dir() and not e.name.startswith("."))
    except OSError as error:
        notes.add(path, f"cannot be read: {error.strerror}")
        return []


def order_of(record):
    name = os.path.basename(record.path)
    return NIGHT.index(name) if name in NIGHT else len(NIGHT)


def runs_in(path, notes, depth=DEPTH):
    """The runs at or below a folder. Records that stand beside a night.json, or are called as a night calls them, are one run."""
    record = record_of(path, notes)
    if record:
        return [Run(path, [record], {})]
    if depth == 0:
        return []
    below = folders_in(path, notes)
    night = json_file(os.path.join(path, "night.json"), notes, os.path.join(path, "night.json"))
    if night is not None or any(os.path.isfile(os.path.join(path, name, "env.json")) for name in NIGHT):
        records = sorted(filter(None, (record_of(b, notes) for b in below)), key=order_of)
        if records:
            return [Run(path, records, night or {})]
        notes.add(path, "is a night without a record")
        return []
    return [run for b in below for run in runs_in(b, notes, depth - 1)]
