#!/bin/sh
# run.sh OUT [VAR=VALUE]... -- PROGRAM [ARG]...: OUT holds the output, and exists only if the run passed.
out=$1
shift
rm -f "$out"
export HABENCH_PLAN="${HABENCH_PLAN-constants}" # whatever plan the user has for this CPU
while [ "$1" != -- ]; do export "${1?}"; shift; done
shift
if "$@" > "$out.part" 2>&1; then mv "$out.part" "$out"
else status=$?; cat "$out.part"; echo "$*: exit $status" >&2; exit 1; fi
