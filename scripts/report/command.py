"""Arguments, and what goes wrong."""

import argparse
import os
import re
import sys
from urllib.parse import quote

from report.compared import Compared, read_rows
from report.files import Notes, clean
from report.record import Folder, runs_in

SETUP = "install it with `scripts/setup.sh --report`"
FOLDERS_MAX = 16
MACHINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # what a machine of a fleet may be called


class Wrong(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def library(path):
    """The script of the plots; Python looks for jinja2 there, too."""
    file = os.path.join(path, "vega.js")
    try:
        with open(file, encoding="utf-8", newline="") as script:
            text = script.read()
    except (OSError, ValueError) as error:
        raise Wrong(40, f"the plotting library {file} cannot be read ({getattr(error, 'strerror', None) or error}); {SETUP}") from error
    if "vegaEmbed" not in text or "</script" in text.lower() or "<!--" in text:
        raise Wrong(40, f"{file} is not what `scripts/setup.sh --report` makes; run it again")
    return text


def load(paths, notes):
    if len(paths) > FOLDERS_MAX:
        raise Wrong(64, f"{len(paths)} folders are more than {FOLDERS_MAX}; put nights into one folder, and name that")
    folders = []
    for path in paths:
        if not os.path.isdir(path):
            raise Wrong(64, f"{clean(path, 300)}: there is no such folder")
        runs = runs_in(path, notes)
        if not runs:
            raise Wrong(64, f"{clean(path, 300)}: there is no record here, nor in a folder below (no env.json); `habench run SUITE -o DIR` makes one")
        folders.append(Folder(path, runs))
    return folders


def put(path, page):
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
    except OSError as error:
        raise Wrong(40, f"{clean(path, 300)}: cannot write: {error.strerror}") from error


def page_of_records(arguments, vega):
    from report.page import label, render
    notes = Notes()
    folders = load(arguments.folders, notes)
    label(folders)
    return render(folders, read_rows(arguments.rows, notes, clean(arguments.why, 400)), notes, vega)


def pages_of_machines(path, names, output, vega):
    """The pages of the machines that stand out, in a folder beside the page of the fleet: where each is, from there."""
    from report.page import render
    beside, pages = os.path.splitext(output)[0] + ".machines", {}
    for name in names:
        notes = Notes()
        runs = runs_in(os.path.join(path, name), notes) if MACHINE.fullmatch(name) else []
        if not runs:
            continue
        try:
            os.makedirs(beside, exist_ok=True)
        except OSError as error:
            raise Wrong(40, f"{clean(beside, 300)}: cannot write: {error.strerror}") from error
        folder = Folder(os.path.join(path, name), runs)
        folder.label = ""
        put(os.path.join(beside, name + ".html"), render([folder], Compared(), notes, vega))
        pages[name] = f"{quote(os.path.basename(beside))}/{quote(name)}.html"
    return pages


def page_of_fleet(arguments, vega):
    from report.fleet import PAGES_MAX, read_fleet, render_fleet, suspects
    notes, path = Notes(), arguments.folders[0]
    fleet = read_fleet(arguments.rows, notes) if arguments.rows else None
    if not fleet or not fleet.fleet:
        raise Wrong(40, f"`habench compare --fleet` printed no verdict: {clean(arguments.why, 400) or 'run it to see why'}")
    pages = pages_of_machines(path, suspects(fleet)[:PAGES_MAX], arguments.named or arguments.output, vega)
    return render_fleet(path, fleet, notes, vega, pages)


def write(arguments):
    vega = library(arguments.library)
    sys.path.insert(0, arguments.library)
    try:
        page = page_of_fleet(arguments, vega) if arguments.fleet else page_of_records(arguments, vega)
    except ImportError as error:
        raise Wrong(40, f"Python lacks what the page is made with ({error}); {SETUP}") from error
    put(arguments.output, page)


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py", description=sys.modules[__name__].__doc__)
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("--rows")
    parser.add_argument("--why", default="")
    parser.add_argument("--fleet", action="store_true")
    parser.add_argument("--named", help="what the output is called at the end")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--library", default=os.path.join(here, "..", "..", "build", "report"))
    parser.add_argument("folders", nargs="+", metavar="DIR")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return 64 if end.code else 0
    try:
        write(arguments)
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return wrong.code
    except MemoryError:
        print("there is not enough memory for a page of these folders", file=sys.stderr)
        return 40
    except Exception as error:  # one line for a user; HABENCH_REPORT_DEBUG has Python's own words
        if os.environ.get("HABENCH_REPORT_DEBUG"):
            raise
        place = error.__traceback__
        while place.tb_next:
            place = place.tb_next
        print(f"a defect of the report: {type(error).__name__}: {clean(error)} ({os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno})",
              file=sys.stderr)
        return 70
    return 0
