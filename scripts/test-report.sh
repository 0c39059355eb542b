#!/bin/sh
# test-report.sh PROGRAM SCRIPT SCOPE: a test of `habench report`, scripts/SCRIPT, by a Python; SCOPE "small": only what the
# program itself does.
program=$1 script=$2
shift 2
for python in python3 /usr/bin/python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && exec "$python" "$(dirname "$0")/$script" "$program" "$@"
done
echo "SKIP: no Python from 3.9 on, so \`habench report\` is not tested: apt install python3"
echo "0 passed, 0 failed"
