#!/bin/sh
# test-report.sh PROGRAM SCOPE: scripts/test_report.py by a Python; SCOPE "small": only what the program itself does.
for python in python3 /usr/bin/python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && exec "$python" "$(dirname "$0")/test_report.py" "$@"
done
echo "SKIP: no Python from 3.9 on, so \`habench report\` is not tested: apt install python3"
echo "0 passed, 0 failed"
