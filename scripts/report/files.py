"""Files as they are found: a damaged one is read as far as it goes, and a note says what was left out."""

import csv
import json
import math
import os
import re
import statistics

ROWS_MAX = 20_000  # of a file of which a row is a case
TEXT_MAX = 200  # characters of a field
BYTES_MAX = 256 << 20  # of a JSON file
SCHEMAS = {"1", "2"}
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
csv.field_size_limit(1 << 20)


def clean(text, most=TEXT_MAX):
    """Text to be shown: without what moves a cursor or turns a line around, and not longer than a line or two."""
    text = CONTROL.sub("?", str(text))
    return text if len(text) <= most else text[: most - 3] + "..."


def number(text):
    """A finite number, or None: not measured, or none that can be drawn."""
    try:
        x = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return x if math.isfinite(x) else None


def positive(text):
    x = number(text)
    return x if x is not None and x > 0 else None


def median(values):
    return statistics.median(values) if values else None


class Notes:
    """What a reader has to know of the files; the same thing of many rows is one line with their number."""

    def __init__(self):
        self.lines = {}

    def add(self, where, what, rows=1):
        key = clean(where, 160), what
        self.lines[key] = self.lines.get(key, 0) + rows

    def texts(self):
        return [f"{where}: {what}" + (f" ({n:,} times)" if n > 1 else "") for (where, what), n in self.lines.items()]


def rows(path, notes, where, most=ROWS_MAX):
    """Each whole row of a CSV file as a dict of texts; none where there is no such file."""
    try:
        file = open(path, newline="", encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        notes.add(where, f"cannot be read: {error.strerror}")
        return
    with file:
        reader = csv.reader(file)
        names, n = None, 0
        while True:
            try:
                fields = next(reader, None)
            except (csv.Error, OSError) as error:
                notes.add(where, f"a row that is no CSV is left out: {error}")
                if isinstance(error, OSError):
                    return
                continue
            if fields is None:
                break
            if not fields:
                continue
            if names is None:
                names = fields
                if not {"case_id", "id"} & set(names):
                    notes.add(where, "has no column case_id: it is no file of habench, and is left out")
                    return
                continue
            if len(fields) != len(names):
                notes.add(where, f"a row that is cut off is left out: {len(fields)} fields in place of {len(names)}")
                continue
            n += 1
            if n > most:
                notes.add(where, f"only the first {most:,} rows are read; `habench report --format csv` has all")
                return
            row = dict(zip(names, fields))
            row.setdefault("case_id", row.get("id", ""))
            if n == 1 and row.get("schema_version", "") not in SCHEMAS:
                notes.add(where, f"has schema version '{clean(row.get('schema_version', ''), 20)}', which this program does not "
                                 "know: columns are taken by their names")
            yield row
        if names is None:
            notes.add(where, "is empty")


def json_file(path, notes, where):
    """The object in a JSON file, or None."""
    try:
        if os.path.getsize(path) > BYTES_MAX:
            notes.add(where, f"is larger than {BYTES_MAX >> 20} MiB, and left out")
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            found = json.load(file, parse_constant=lambda name: None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        notes.add(where, f"cannot be read: {clean(getattr(error, 'strerror', None) or error, 120)}")
        return None
    if not isinstance(found, dict):
        notes.add(where, "is no JSON object, and left out")
        return None
    return found


def part(of, key, kind=dict):
    """A member of a JSON object that is of that kind, or an empty one."""
    found = of.get(key) if isinstance(of, dict) else None
    return found if isinstance(found, kind) else kind()
