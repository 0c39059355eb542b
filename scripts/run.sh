#!/bin/sh
# run.sh OUT [VAR=VALUE]... -- PROGRAM [ARG]...: runs a test; OUT holds its output, and its last line the CPU and wall time.
# A test that fails leaves OUT.failed instead, and run.sh ends with 0 all the same: ninja goes on with the other tests, runs
# this one again next time, and scripts/summary.sh counts it as failed. One that does not end is stopped after an hour. 77: this
# machine lacks what it asks, and its output says that it was skipped.
out=$1
shift
rm -f "$out" "$out.failed"
export HABENCH_PLAN="${HABENCH_PLAN-constants}" # whatever plan the user has for this CPU
while [ "$1" != -- ]; do export "${1?}"; shift; done
shift
began=$(date +%s%N)
timeout --foreground -k 10 3600 "$@" > "$out.part" 2>&1
status=$?
[ $status -ne 124 ] || echo "FAILED: it did not end within an hour" >> "$out.part"
times > "$out.times" # the second line is that of the children
printf 'time: %s %s\n' "$(sed -n 2p "$out.times")" "$((($(date +%s%N) - began) / 1000000))" >> "$out.part"
rm -f "$out.times"
if [ $status -eq 0 ] || [ $status -eq 77 ]; then mv "$out.part" "$out"; exit 0; fi
mv "$out.part" "$out.failed"
echo "FAILED: $out, exit code $status: $*"
grep -E '^(\[  ERROR   \]|\[   LINE   \]|FAILED|FAIL |ERROR )|: error: |AddressSanitizer|ThreadSanitizer|runtime error' "$out.failed" | head -n 12 | cut -c1-300
tail -n 12 "$out.failed" | cut -c1-300
echo "all of it: $out.failed"
