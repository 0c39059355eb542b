#!/bin/sh
# test-stop.sh PROGRAM: the first signal ends a run after the step that it is in, with the rows that are complete.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1

for signal in TERM INT HUP; do
    rm -rf "$dir/run"
    "$program" run 'resident:ctx=4096,steps=5000' -o "$dir/run" > "$dir/out" 2> "$dir/err" < /dev/null &
    pid=$!
    # env.json is the first file of a run: from there on there is something to stop
    tries=0
    until [ -s "$dir/run/env.json" ] || [ $tries -ge 600 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -$signal "$pid"
    wait "$pid"
    code=$?
    case $signal in TERM) want=143 ;; INT) want=130 ;; HUP) want=129 ;; esac
    holds "SIG$signal gives $want, not $code" test "$code" -eq "$want"
    holds 'it says so' grep -q 'interrupted' "$dir/err"
    holds 'half a case is no row' test ! -e "$dir/run/cases.csv"
done
finish
