#!/bin/sh
# test-stop.sh PROGRAM: the first signal ends a run after the step that it is in, with the rows that are complete.
program=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
holds()
{
    text=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $text"; sed 's/^/    /' "$dir/err"; fi
}

for signal in TERM INT; do
    rm -rf "$dir/run"
    "$program" run 'resident:ctx=4096,steps=20000' -o "$dir/run" > "$dir/out" 2> "$dir/err" < /dev/null &
    pid=$!
    # env.json is the first file of a run: from there on there is something to stop
    tries=0
    until [ -s "$dir/run/env.json" ] || [ $tries -ge 600 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -$signal "$pid"
    wait "$pid"
    code=$?
    case $signal in TERM) want=143 ;; INT) want=130 ;; esac
    holds "SIG$signal gives $want, not $code" test "$code" -eq "$want"
    holds 'it says so' grep -q 'interrupted' "$dir/err"
done
echo "$passed passed, $failed failed"
test "$failed" -eq 0
