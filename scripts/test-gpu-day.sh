#!/bin/sh
# test-gpu-day.sh PROGRAM SCHEMA TOOL.so: the day of suites/gpu_day.steps from outside: all of it, of suites so small that the emulated device
# runs them, with a stand-in of compute-sanitizer, whose library is TOOL.so (harness/engine/test_tool.c); on the embedded device; days that are cut, killed, resumed and published. SCHEMA:
# the program of harness/report/test_schema.c.
# shellcheck source=scripts/test.sh disable=SC2016
. "$(dirname "$0")/test.sh"
program=$(realpath "$1") TOOL=$(realpath "$3") sanitize=$(realpath scripts/sanitize.sh) schema=$(realpath "$2") night_schema=$(realpath results/schema/night.schema.json) publish=$(realpath scripts/publish.sh) steps=$(realpath suites/gpu_day.steps)

# every command of the day is one of the suites that are published
"$program" run gpu_day --dry-run > "$dir/commands" 2> "$dir/err"
holds 'the day is said' test $? -eq 0
holds 'a launch that waits' grep -q "^first: CUDA_LAUNCH_BLOCKING=1 habench 'check' 'resident:" "$dir/commands"
sed -n 's/^[a-z0-9_]*: \([A-Z_]*=[^ ]* \)\{0,1\}habench \(.\(run\|check\).*\)/\2/p' "$dir/commands" > "$dir/lines"
holds 'without CUPTI' grep -q "^decode_bare: HABENCH_CUPTI=off habench 'run' 'decode' '-f' 'ctx=32768,batch=1,dtype=f16' " "$dir/commands"
holds 'ten steps have cases' test "$(wc -l < "$dir/lines")" -eq 10
while read -r line; do
    eval "set -- $line"
    holds "habench $* has cases" sh -c '"$@" | grep : > /dev/null' sh "$program" "$@" --dry-run
done < "$dir/lines"

if command -v python3 > /dev/null; then
    holds 'PyTorch beside it' python3 scripts/test_torch_attention.py "$program" > "$dir/err" 2>&1
fi

own_suites
ln -s "$(realpath suites/gpu_day.steps)" "$dir/suites"
cd "$dir" || exit 1
head='[default]\nctx = 64\nlayers = 1\nsteps = 1\nhead_dim = 64\ntime = 10ms\n[a]\n'
for suite in smoke check full; do printf '%b' "${head}variant = resident\n" > suites/$suite.suite; done
printf '%b' "${head}variant = resident hgca\n" > suites/recency_split.suite
printf '%b' "${head}variant = resident\ndataset = iid\nheads = 1/1\n[b]\nvariant = resident\nctx = 32768 131072\nheads = 1/1\ndataset = iid\n" > suites/decode.suite
printf '[a]\nsuite = lse_merge\ncase = permuted\nstates = 2\nform = natural\n' > suites/lse_merge.suite
printf '[a]\nsuite = link\nlayout = contiguous\npiece = 64K\nmethod = pinned\n' > suites/link.suite
# A sanitizer that finds what the files say it finds. As the real one it has a summary only where it has seen the process that uses the
# device, by a connection that is its own: to the end of it.
cat > bin/compute-sanitizer <<'S'
#!/bin/sh
[ "$1 $3 $4 $5 $6 $7 $8 $HABENCH_CUPTI" = '--tool --target-processes all --require-cuda-init no --error-exitcode 10 off' ] || exit 3
tool=$2
shift 8
if [ -e "$FOUND/kill" ] && [ "$tool" = synccheck ]; then kill -KILL $$; fi
rm -f "$FOUND/ends"
if [ -e "$FOUND/blind" ]; then "$@"; else LD_PRELOAD=$TOOL HA_TOOL_LOG=$FOUND/ends "$@"; fi
code=$?
if [ "$(cat "$FOUND/ends")" != 'ended with 0' ]; then
    echo '========= Target application terminated before first instrumented API call'
elif [ "$tool" != racecheck ]; then echo '========= ERROR SUMMARY: 0 errors'
elif [ -e "$FOUND/race" ]; then
    echo '========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'
    exit 10
else echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'; fi
exit $code
S
# PyTorch is not to be found, whoever has installed it
printf '#!/bin/sh\necho "$@" | grep -q torch_attention && exit 77\nexit 0\n' > bin/python3
chmod +x bin/*
with=$PATH FOUND=$dir
PATH=$dir/bin:$PATH
export PATH FOUND TOOL

# day CODE ARG...: what `habench run` ends with
day()
{
    code=$1
    shift
    timeout 900 "$program" run -q "$@" > out 2> err < /dev/null
    got=$?
    if [ "$got" -eq "$code" ]; then pass; else fail "run $*: exit code $got, not $code"; cat out; fi
}
says() { holds "a day says: $1" grep -qF -e "$1" out err; }
# step NAME WORD...: what the last day said of it
step()
{
    name=$1
    shift
    if grep -q "^$name  *$*\( \|$\)" out; then pass; else fail "$name $*: $(grep "^$name " out)"; grep -A 2 '^fail' ./*/"$name.txt" | head; fi
}
# agrees DAY CODE
agrees()
{
    word=$(sed -n 's/^  "verdict": "\(.*\)",$/\1/p' "$1/night.json")
    holds "$1/night.json has $2" grep -q "^  \"exit\": $2," "$1/night.json"
    holds "$1/report.txt begins with '$word'" sh -c "head -n 1 '$1/report.txt' | grep -q '^$word: '"
    holds "the last line of $1 begins with '$word'" sh -c "tail -n 1 out | grep -q '^$word: '"
    holds "$1/night.json is as its schema says" "$schema" test_schema "$night_schema" "$1/night.json"
}

# all of it, on the emulated device; the machine of a test may be unfit
touch race kill
day 10 gpu_day -o one --device cuda_emulated
agrees one 10
for name in machine first smoke lse_merge check decode_32k decode_bare decode_128k link recency_split full memcheck; do step $name passed; done
# a probe beside other work finds that its meters are off
holds "probe: $(grep '^probe ' out)" grep -q -E '^probe +(passed|not fit to judge)( |$)' out
step racecheck wrong
step synccheck killed
step flashinfer waived
step peers waived
for file in machine.txt smoke/cases.csv probe/probe.csv lse_merge/lse_merge.csv decode_128k/figures.csv link/link.csv full/figures.csv; do
    holds "one/$file" test -s "one/$file"
done
holds 'what the sanitizer found is there' grep -q 'SUMMARY: 1 hazard' one/racecheck.txt
holds 'the device is the emulated one' grep -q '"kind": "emulated"' one/smoke/env.json
cp -r one copy
holds 'a day reads as a night' sh -c "'$program' compare one copy > out 2> err; grep -q 'resident:' one/full/cases.csv"

# another day: what is complete is not run again, what was killed or waived is
day 64 gpu_day -o one --device cuda_emulated
says 'not empty'
day 64 gpu_day -o one --device host --resume
says "device: there 'cuda_emulated', here 'host'"
rm kill
date -r one/smoke.txt +%s%N > smoke_before
day 10 gpu_day -o one --device cuda_emulated --resume
agrees one 10
step synccheck passed
holds 'nothing complete is run again' test "$(date -r one/smoke.txt +%s%N)" = "$(cat smoke_before)"
holds 'and is said to be of an earlier day' sh -c "grep '^smoke ' out | grep -q 'earlier$'"
holds 'each step is in night.json once' test "$(grep -c '"name": "synccheck"' one/night.json)" -eq 1
rm race

# whatever the sanitizer's own exit code is, and whatever the rows are
sanitize()
{
    code=$1
    shift
    HABENCH=$program DEVICE=host timeout 600 "$sanitize" "$@" > out 2>&1
    holds "sanitize.sh $*: $code" test $? -eq "$code"
}
sanitize 0 memcheck resident:ctx=64,layers=1,steps=1
touch blind
sanitize 40 memcheck resident:ctx=64,layers=1,steps=1
holds 'the sanitizer has not looked, and the case is right' sh -c "grep -q 'has not looked' out && grep -q '^1 passed, 0 failed' out"
rm blind
touch race
sanitize 10 racecheck resident:ctx=64,layers=1,steps=1
rm race
PATH=$with:/nowhere sanitize 77 memcheck resident

# on the embedded device, and published
timeout 900 "$program" run -q gpu_day -o two --device host > out 2> err < /dev/null
code=$?
holds "a day on the host ends with 0 or 40, not with $code" test $code -eq 0 -o $code -eq 40
agrees two $code
step full passed
step racecheck passed
mkdir results
echo '| run |' > results/README.md
# what an earlier try has left half done is no hindrance; a case's line of `full`, whose fourth column of numbers is step ms
mkdir -p results/day.part/day/old
sed -i '1s/.*/not all ran: gpu_day on host/' two/report.txt
sed -i 's/^  "verdict": .*/  "verdict": "not all ran",/' two/night.json
PATH=$with RESULTS=results HABENCH=$program "$publish" two day > out 2> err
holds 'a day is published' test $? -eq 0
for file in night.json report.txt smoke/cases.csv full/figures.csv full/env.json figures.md; do holds "results/day/$file" test -s "results/day/$file"; done
line=$(grep '^resident ' two/full.txt | head -n 1)
holds "a step takes some ms: $line" sh -c "grep -q '^variant .* mass  *step ms ' two/full.txt && echo '$line' | grep -q -E '^resident +pass +[^ ]+ +[^ ]+ +[^ ]+ +[0-9.]+'"
holds 'the page has it' grep -q -x -F -e "$line" results/day/figures.md
holds 'and the verdict of the day' sh -c "grep -q '^not all ran: gpu_day' results/day/figures.md && ! grep -q 'habench: right' results/day/figures.md"
holds 'and the ceilings' grep -q 'device memory read' results/day/figures.md
holds 'and nothing of what was only checked' test ! -e results/day/check/figures.csv -a ! -e results/day/check/counters.csv -a -s results/day/check/cases.csv -a -s two/check/figures.csv
holds 'nothing half done is left' test ! -e results/day.part -a ! -e results/day/old
holds 'and a line' grep -q "^| \`day\` | .* | host | \`run gpu_day\` at .*, verdict 'not all ran': \`figures.md\`" results/README.md
for file in machine.txt full/samples.csv; do holds "without $file" test ! -e "results/day/$file"; done
holds 'no name of a folder of this machine' sh -c "! grep -r -q -F '$dir' results/day"
PATH=$with RESULTS=results HABENCH=$program "$publish" two day > out 2> err
holds 'once' test $? -eq 64
PATH=$with RESULTS=results HABENCH=$program "$publish" one > out 2> err
says 'emulated device, whose times are no figures'

# no time
day 20 gpu_day -o short --device host --max-time 1ms
agrees short 20
step peers not run

# steps of one's own: none ends the next, and what one has started ends with it
cat > sleeper <<S
sh -c "sleep 1000; : $dir/" &
sleep 1000
S
cat > suites/mine.steps <<S
[default]
device = host
time = 1s
[slow]
shell = . $dir/sleeper
[crash]
shell = kill -SEGV \$\$
[told]
env = GIVEN=1
shell = test "\$GIVEN\$DEVICE" = 1host && test -x "\$HABENCH" && test "\$TREE" = $dir
[odd]
shell = exit 3
[right]
time = 1m
habench = check resident:ctx=64,layers=1,steps=1
S
day 20 mine -o mine
step slow killed
says 'slow: still running at its limit, and was ended'
step crash killed
step told passed
step odd failed
step right passed
agrees mine 20
"$program" report mine --format md > out 2> err
says '**habench: not all ran**. 1 cases: 1 pass'
holds 'no process is left' nobody_is_left

# one plan of the CPU kernels for all steps
cat > suites/planned.steps <<S
[default]
device = host
time = 1m
[right]
habench = check resident:ctx=64,layers=1,steps=1
[fast]
habench = run cpu:ctx=64,layers=1,steps=1
[told]
shell = test "\$HABENCH_PLAN" = constants
S
day 64 planned -o no --plan nosuch.csv
day 0 planned -o planned --plan constants
for name in right fast told; do step $name passed; done
plans() { tr -d ' \n' < planned/night.json | grep -o '"--plan","constants"' | wc -l; }
holds 'who takes a plan is told of it' test "$(plans)" -eq 2
holds 'and has it' sh -c "tail -n 1 planned/fast/cases.csv | tr -d '\r' | grep -q '\"constants\",[^,]*$'"
"$program" run gpu_day --dry-run --plan constants > out 2> err
holds 'run and check take it, others do not' test "$(grep -c "'--plan' 'constants'" out),$(grep -c "habench 'run'\|habench 'check'" out)" = 10,10

# without python3 what needs it is waived, with the reason
{ printf '[default]\ndevice = host\n'; sed -n '/^\[flashinfer\]/,$p' "$steps"; } > suites/python.steps
timeout 600 env PATH=/nowhere "$program" run -q python -o python > out 2> err < /dev/null
holds 'all is waived' test $? -eq 20
for name in flashinfer peers; do
    step $name waived
    says "python/$name.txt: python3 is not installed"
done

# Ctrl-C ends the step at hand and the day
printf '[slow]\ntime = 1m\nshell = . %s/sleeper\n[next]\ntime = 1m\nshell = true\n' "$dir" > suites/long.steps
(exec timeout -s INT 2 "$program" run -q long -o "$dir/cut" --device host > out 2> err < /dev/null)
says 'ended by a signal'
step next not run
agrees cut 20
holds 'no process is left after Ctrl-C' nobody_is_left

# what is not to be
day 64 gpu_day
says 'where to? -o DIR'
day 64 gpu_day smoke -o no
says 'is a file of steps: `habench run gpu_day -o DIR`'
day 64 gpu_day -o no -f ctx=1
says '--filter means nothing to gpu_day'
day 64 gpu_day -o no --device nosuch
"$program" check gpu_day > out 2> err
says 'is a file of steps'
bad()
{
    printf '%b' "$1" > suites/bad.steps
    day 64 bad -o no
    says "$2"
}
bad '[a]\nshell = true\n' 'suites/bad.steps:1: [a]: time: a step has a limit'
bad '[a]\ntime = 1s\n' 'a step has habench or shell, and not both'
bad '[a]\ntime = 1s\nhabench = probe\nshell = true\n' 'a step has habench or shell, and not both'
bad '[a]\ntime = 1s\nhabench = chek\n' "unknown command 'chek'; did you mean 'check'?"
bad '[a]\ntime = 1s\nshel = true\n' "unknown key 'shel'; did you mean 'shell'?"
bad '[A/b]\ntime = 1s\nshell = true\n' 'a step is called by'
bad '[a]\ntime = 1s\nshell = true\ndevice = host\n' 'device: all steps have one'
holds 'what is refused leaves no folder' test ! -e no
cd / || exit 1
finish
