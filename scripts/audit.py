#!/usr/bin/env python3
"""Recompute a run from what went in, and say where habench is wrong.

Reads the files that `habench check ... --dump DIR` has written and computes in extended precision, from the definitions
in docs/audit.md alone: the keys that each variant must have used, attention over the keys that it reports with the
queries and keys that it reports, its LSE, the bounds on both, error over bound, and the softmax mass. Nothing that
habench computed is believed: its outputs are held against the bounds found here, and its reference, bounds and verdicts
against what was found here. A line a case, and below it what its states have of their own, and its notes:

  ok NAME: 48 rows of attention over 3 steps: error/bound 0.047; reference off by 2.1e-12 of the bound, bounds by 3e-13
    states of their own: 24 with a query, 12 with keys
    note hit: of 12 heads, from 0 to 1, mean 0.417
  WRONG NAME: layer 0 seq 0 step 1 head 3 token 0: out[17] is 1.25, not 0.731: error/bound 8.8e+04; 2 rows of 48

exit codes: 0 all is right, 10 something is wrong, 20 a file is missing or damaged, or could not be judged, 64 usage, 77
nothing was looked at (numpy is missing, or there is no file)
"""

import sys

try:
    import numpy
except ImportError:
    print("audit.py: numpy is missing, nothing was looked at: apt install python3-numpy, or pip install numpy",
          file=sys.stderr)
    sys.exit(77)

sys.dont_write_bytecode = True
from audit.command import main  # of the folder beside this file, which Python prefers to the file

if __name__ == "__main__":
    main(__doc__)
