#!/usr/bin/env python3
"""report.py -o OUT [--rows FILE] [--why TEXT] [--library DIR] [--fleet [--named OUT]] DIR...: the page of `habench report`, which calls this. FILE has the rows that
`habench compare --format json` printed; TEXT is what it said where it printed none. DIR of --library: what `scripts/setup.sh
--report` put there. Exit code: 0 OUT is written, 40 it cannot be, 64 usage."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from report.command import main

sys.exit(main(sys.argv[1:]))
