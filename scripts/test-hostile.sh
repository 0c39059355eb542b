#!/bin/sh
# test-hostile.sh PROGRAM HOSTILE.so [small]: what a run is to survive, from outside: a device that misbehaves, in the
# program's own suites; names that a terminal must not see; a second run at one folder; a full disk; signals; time that is
# over. small: for programs that sanitizers slow down.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1 device=$2 scope=$3 n=0
limit=$([ "$scope" = small ] && echo 10s || echo 2s)

# The run's files go to a folder of its own, $out; its exit code is $code.
run()
{
    n=$((n + 1))
    out=$dir/$n
    "$program" "$@" -o "$out" > "$dir/out" 2> "$dir/err" < /dev/null
    code=$?
}
last_is() { [ "$(tail -1 "$dir/out")" = "$1" ]; }
rows() { cat "$out"/cases.csv "$out"/link.csv "$out"/lse_merge.csv 2> /dev/null | grep -v '^"schema_version"' | grep -c "$1"; }

# ---- a device that misbehaves ------------------------------------------------------------------

# costs_one HOOK DEED CASES COMMAND WORD...: one error among CASES, and the others are right
costs_one()
{
    hook=$1 deed=$2 cases=$3
    shift 3
    rm -f "$dir/once"
    export HA_HOSTILE="$hook:$deed" HA_HOSTILE_ONCE="$dir/once"
    run "$@" -q --device "$device"
    unset HA_HOSTILE HA_HOSTILE_ONCE
    last="$((cases - 1)) passed, 1 failed, 0 skipped"
    if [ $code -eq 40 ] && [ -f "$dir/once" ] && last_is "$last" && [ "$(rows .)" -eq "$cases" ] \
        && [ "$(rows '"error"')" -eq 1 ] && grep -q "errors=\"1\"" "$out/junit.xml"; then pass
    else fail "$hook $deed: exit $code, $(rows .) rows, $(rows '"error"') errors, $(tail -1 "$dir/out")"; fi
}
two='resident:ctx=64,layers=1,steps=1 resident:ctx=65,layers=1,steps=1'
both='hgca:ctx=300,steps=2 hgca:ctx=301,steps=2'
# shellcheck disable=SC2086 # words
{
    costs_one load crash 2 check $two
    costs_one open exit_0 2 check $two
    costs_one merge abort 2 check $both
    costs_one attend print 2 check $two
    costs_one event_record term 2 check $both
    costs_one stream_destroy kill 2 check $two
    costs_one stream_sync garbage 2 check $two
    costs_one failure replaced 2 check $two
    costs_one event_destroy poison 2 check $both
    costs_one close crash 3 check resident:ctx=64 resident:ctx=64,isa=c resident:ctx=65,isa=c
    costs_one copy exit_3 3 check lse_merge:case=gaps $two
    costs_one stream_destroy abort 3 check lse_merge:case=stream_and_graph $two
    costs_one copy_pieces crash 3 check link:piece=4K,layout=scattered,method=pieces $two
    costs_one move hang 3 check --case-time $limit link:piece=4K,layout=scattered,method=pinned \
        link:piece=4K,layout=scattered,method=kernel resident:ctx=64
    [ "$scope" = small ] || costs_one trace crash 2 run $two
}
holds 'nothing that was started is left' nobody_is_left

# at_end DEED CODE WORDS: the device is closed once more when all rows are there: they stay, and its end is said
at_end()
{
    rm -f "$dir/once"
    export HA_HOSTILE="close:$1" HA_HOSTILE_ONCE="$dir/once"
    run check -q resident:ctx=64,layers=1,steps=1 --device "$device"
    unset HA_HOSTILE HA_HOSTILE_ONCE
    if [ $code -eq "$2" ] && [ -f "$dir/once" ] && last_is '1 passed, 0 failed, 0 skipped' && grep -q "the worker process: $3" "$dir/err"; then pass
    else fail "close $1 at the end: exit $code, $(tail -1 "$dir/out")"; fi
}
at_end crash 40 'killed by SIGSEGV, at its end'
at_end exit_3 40 'exited with 3, at its end'
at_end hang 0 'had not ended 2000 ms after its last answer, and was killed'
holds 'nothing that was started is left at the end' nobody_is_left

# ---- names that a terminal must not see ------------------------------------------------------------

export HA_HOSTILE_NAMES=1
clean() { ! LC_ALL=C grep -q '[^ -~[:space:]]' "$@" && ! LC_ALL=C tr -d '\r\n\t' < "$1" | LC_ALL=C grep -q '[[:cntrl:]]'; }
run check -q resident:ctx=64,layers=1 --device "$device"
holds 'a hostile name does no harm' test $code -eq 0
holds 'its name is printed' grep -q 'evil?\[31m' "$dir/out"
for file in "$dir/out" "$dir/err" "$out"/*; do holds "$file is clean" clean "$file"; done
run check -q --format json resident:ctx=64,layers=1 --device "$device"
holds 'each line of stdout is an object' test "$(grep -c '^{"row":"[a-z]*",.*}$' "$dir/out")" -eq "$(wc -l < "$dir/out")"
holds 'stdout is clean' clean "$dir/out"
"$program" list devices > "$dir/out" 2> "$dir/err"
holds 'list devices is clean' clean "$dir/out"
unset HA_HOSTILE_NAMES

# ---- commands that run a plugin without a run --------------------------------------------------------

mkdir "$dir/bin"
cp "$program" "$dir/bin/habench"
cp "$device" "$dir/bin/ha_hostile.so"
for deed in crash exit_0 replaced abort garbage; do
    rm -f "$dir/once"
    HA_HOSTILE=info:$deed HA_HOSTILE_ONCE=$dir/once "$dir/bin/habench" list devices > "$dir/out" 2> "$dir/err"
    holds "list devices, $deed: ends well" test $? -eq 0
    holds "list devices, $deed: says so" grep -q '^hostile    plugin  not usable: ' "$dir/out"
    rm -f "$dir/once"
    HA_HOSTILE=open:$deed HA_HOSTILE_ONCE=$dir/once "$program" probe --device "$device" > "$dir/out" 2> "$dir/err"
    holds "probe, $deed: exit 40" test $? -eq 40
    holds "probe, $deed: one line" test "$(wc -l < "$dir/err")" -eq 1
    holds "probe, $deed: names the device" grep -q "^habench: device $device: " "$dir/err"
    rm -f "$dir/once"
    HA_HOSTILE=open:$deed HA_HOSTILE_ONCE=$dir/once "$program" doctor --device "$device" > "$dir/out" 2> "$dir/err"
    holds "doctor, $deed: exit 40" test $? -eq 40
    holds "doctor, $deed: a row of the device" grep -q '^unfit    device  ' "$dir/out"
    holds "doctor, $deed: and of the host" grep -q ' swappiness  ' "$dir/out"
done

# ---- time ---------------------------------------------------------------------------------------------

# The limits hold inside a case: these would go on for hours.
long='resident:ctx=4096,steps=1000000'
run check -q "$long" resident:ctx=64 --max-time 1s
holds '--max-time: exit 20' test $code -eq 20
holds '--max-time: both are not run' last_is '0 passed, 0 failed, 2 skipped'
run check -q "$long" resident:ctx=64 --case-time $limit
holds '--case-time: exit 40' test $code -eq 40
holds '--case-time: the next one is right' last_is '1 passed, 1 failed, 0 skipped'
rm -f "$dir/once"
export HA_HOSTILE=attend:hang HA_HOSTILE_ONCE="$dir/once"
run check -q resident:ctx=64 resident:ctx=65 --device "$device" --max-time 1s
unset HA_HOSTILE HA_HOSTILE_ONCE
holds '--max-time while it hangs: exit 20' test $code -eq 20

# ---- signals --------------------------------------------------------------------------------------------

# signalled CODE SIGNAL...: a run of many cases, each signal after a random moment; its rows are whole
signalled()
{
    want=$1
    shift
    n=$((n + 1))
    out=$dir/$n
    # shellcheck disable=SC2086
    "$program" check -q $many -o "$out" > "$dir/out" 2> "$dir/err" < /dev/null &
    pid=$!
    while [ ! -f "$out/env.json" ]; do sleep 0.01; done
    for signal; do
        sleep "0.$(($(od -An -N2 -tu2 /dev/urandom) % 600 + 100))"
        kill "-$signal" $pid 2> /dev/null
    done
    wait $pid
    code=$?
    # it may have come to its end before
    [ $code -eq 0 ] && [ "$want" -ne 0 ] && [ "$(rows .)" -eq "$(grep -c 'classname="correctness"' "$out/junit.xml")" ] && return
    holds "$*: exit $code, not $want" test $code -eq "$want"
    holds "$*: junit.xml is there" test "$(tail -1 "$out/junit.xml")" = '</testsuites>'
    holds "$*: it has every row" test "$(rows .)" -eq "$(grep -c 'classname="correctness".*/>$' "$out/junit.xml")"
    holds "$*: no row is torn" test -z "$(tail -c 1 "$out/cases.csv" 2> /dev/null)"
}
many=$(for ctx in 64 65 66 67 68 69 70 71; do echo "resident:ctx=$ctx hgca:ctx=$ctx,steps=40 h2o:ctx=$ctx,steps=40"; done)
for i in 1 2 3; do
    signalled 130 INT
    signalled 130 INT INT
    signalled 143 TERM
done
many=resident:ctx=64
export HA_HOSTILE=attend:hang HA_HOSTILE_ONCE="$dir/once"
for signals in TERM 'INT INT'; do
    rm -f "$dir/once"
    n=$((n + 1))
    out=$dir/$n
    "$program" check -q resident:ctx=64 --device "$device" -o "$out" > "$dir/out" 2> "$dir/err" < /dev/null &
    pid=$!
    while [ ! -f "$dir/once" ]; do sleep 0.01; done
    for signal in $signals; do kill "-$signal" $pid; sleep 0.1; done
    wait $pid
    code=$?
    holds "$signals ends a case that hangs" test $code -eq "$([ "$signals" = TERM ] && echo 143 || echo 130)"
    holds "$signals: the case is not run" last_is '0 passed, 0 failed, 1 skipped'
done

# ---- the lock --------------------------------------------------------------------------------------------

rm -f "$dir/once"
export HA_HOSTILE=attend:fork_and_hang
"$program" check -q resident:ctx=64 --device "$device" -o "$dir/locked" > /dev/null 2>&1 < /dev/null &
pid=$!
while [ ! -f "$dir/once" ]; do sleep 0.01; done
unset HA_HOSTILE HA_HOSTILE_ONCE
"$program" check -q resident:ctx=64 --device "$device" -o "$dir/locked" --resume > "$dir/out" 2> "$dir/err"
holds 'a second run is refused' test $? -eq 64
holds 'with one line' test "$(wc -l < "$dir/err")" -eq 1
holds 'that names the first' grep -q "another run (process $pid) writes to this folder" "$dir/err"
kill -KILL $pid
wait $pid 2> /dev/null
"$program" check -q resident:ctx=64 --device "$device" -o "$dir/locked" --resume > "$dir/out" 2> "$dir/err"
holds 'a run that was killed holds no lock' test $? -eq 0
holds 'nothing that was killed is left' nobody_is_left

# ---- a full disk -----------------------------------------------------------------------------------------

n=$((n + 1))
out=$dir/$n
(
    ulimit -f 8
    # shellcheck disable=SC2046
    exec "$program" check -q $(seq -f 'resident:ctx=%g' 64 100) -o "$out" > "$dir/out" 2> "$dir/err"
)
holds 'a full disk: exit 40' test $? -eq 40
holds 'one line with cause and fix' grep -q '^habench: .*: File too large; the rows so far are kept: make room and go on with --resume$' "$dir/err"
holds 'and no other' test "$(wc -l < "$dir/err")" -eq 1
done=$(rows .)
holds 'the rest is not run' last_is "$done passed, 0 failed, $((37 - done)) skipped"
holds 'some are' test "$done" -gt 0

# ---- fresh processes ---------------------------------------------------------------------------------------

run check -q --processes 3 resident:ctx=64 offload:ctx=64
holds 'each case three times' last_is '6 passed, 0 failed, 0 skipped'
order=$(awk -F'","' 'NR > 1 { print $4 substr($3, 1, 1) }' "$out/cases.csv" | tr '\n' ' ')
holds "in turns, not $order" test "$order" = '0r 0o 1r 1o 2r 2o '
holds 'and so in figures.csv' test "$(awk -F'","' 'NR > 1 { print $4 }' "$out/figures.csv" | sort -u | tr '\n' ' ')" = '0 1 2 '
sed -i '$d' "$out/cases.csv"
"$program" check -q --processes 3 resident:ctx=64 offload:ctx=64 -o "$out" --resume > "$dir/out" 2> "$dir/err"
holds 'what is missing is run again' last_is '6 passed, 0 failed, 0 skipped'
holds 'and nothing else' test "$(rows .)" -eq 6

# ---- the stack ---------------------------------------------------------------------------------------------

if [ "$scope" != small ]; then
    for kib in 200 64 24; do
        (ulimit -s $kib && exec "$program" list suites) > "$dir/out" 2> "$dir/err"
        holds "a stack of $kib KiB: exit 40" test $? -eq 40
        holds 'and one line' test "$(wc -l < "$dir/err")" -eq 1
    done
fi

finish
