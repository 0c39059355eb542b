#!/bin/sh
# with-numpy.sh SCRIPT [ARG]...: the script, by a Python that has numpy; where there is none, one line says so.
for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null && exec "$python" "$@"
done
echo "SKIP: no Python with numpy, so there is no $1: apt install python3-numpy"
echo "0 passed, 0 failed"
