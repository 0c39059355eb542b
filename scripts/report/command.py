"""Arguments, and what goes wrong."""

import argparse
import os
import sys

from report.compared import read_rows
from report.files import Notes, clean
from report.record import Folder, runs_in

SETUP = "install it with `scripts/setup.sh --report`"
FOLDERS_MAX = 16


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


def write(arguments):
    notes = Notes()
    folders = load(arguments.folders, notes)
    compared = read_rows(arguments.rows, notes, clean(arguments.why, 400))
    vega = library(arguments.library)
    sys.path.insert(0, arguments.library)
    try:
        from report.page import label, render
    except ImportError as error:
        raise Wrong(40, f"Python lacks what the page is made with ({error}); {SETUP}") from error
    label(folders)
    page = render(folders, compared, notes, vega)
    try:
        with open(arguments.output, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
    except OSError as error:
        raise Wrong(40, f"{clean(arguments.output, 300)}: cannot write: {error.strerror}") from error


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py", description=sys.modules[__name__].__doc__)
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("--rows")
    parser.add_argument("--why", default="")
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
