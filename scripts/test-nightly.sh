#!/bin/sh
# test-nightly.sh PROGRAM SCHEMA: nights from outside: of a small suite, in the folder in which it runs. Times are changed a thousandfold
# in the base, so that no other load can hide what is looked for. SCHEMA: the program of harness/report/test_schema.c.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1 schema=$(realpath "$2") night_schema=$(realpath results/schema/night.schema.json)
own_suites
cd "$dir" || exit 1
export XDG_CACHE_HOME="$dir/empty" # no plan that was kept on this machine
cat > suites/nightly.suite <<'S'
[default]
ctx = 256
layers = 1
steps = 4
head_dim = 64
time = 10ms
[all]
variant = resident cpu
S
printf '[a]\nvariant = resident\nctx = 64\nlayers = 1\nsteps = 1\n' > suites/smoke.suite
printf '[a]\nsuite = lse_merge\ncase = permuted\nstates = 2\n' > suites/lse_merge.suite
printf '[a]\nsuite = device\nop = copy\nbytes = 65536\n' > suites/device.suite

# night CODE ARG...: what it ends with
night()
{
    code=$1
    shift
    timeout 900 "$program" nightly -q "$@" > out 2> err < /dev/null
    got=$?
    if [ "$got" -eq "$code" ]; then pass; else fail "nightly $*: exit code $got, not $code"; cat out; grep -A 2 '^fail' ./*/*.txt | head -n 20; fi
}
# agrees NIGHT CODE: what a night came to is the same in all that it leaves
agrees()
{
    word=$(sed -n 's/^  "verdict": "\(.*\)",$/\1/p' "$1/night.json")
    holds "$1/night.json has $2" grep -q "^  \"exit\": $2," "$1/night.json"
    holds "$1/report.txt begins with '$word'" sh -c "head -n 1 '$1/report.txt' | grep -q '^$word: night of '"
    bad=$(sed -n 's/^<testsuites .* failures="\([0-9]*\)" errors="\([0-9]*\)">$/\1\2/p' "$1/junit.xml")
    if [ "$2" -eq 0 ]; then holds "$1/junit.xml has no failure" test "$bad" = 00
    else holds "$1/junit.xml has '$word'" grep -q "<[a-z]* message=\"$word\">" "$1/junit.xml"; fi
    [ -s "$1/run/cases.csv" ] || [ -s "$1/check/cases.csv" ] || return
    holds "$1/report.txt ends with '$word'" grep -q "^$word: .* \(beside\|nothing to compare\)" "$1/report.txt"
    holds "$1/compare.jsonl has $2 and '$word'" grep -q "^{\"row\":\"verdict\".*\"exit\":$2,\"verdict\":\"$word\"" "$1/compare.jsonl"
}
says() { holds "nightly says: $1" grep -qF -e "$1" out err; }

night 64 extra and more
says 'nightly measures one suite'
night 64 nosuch -o n
says "'nosuch'"
night 64
says 'where to? -o DIR'
night 64 -o n --against nowhere
says 'nowhere: there is no such folder'
night 64 -o n --device nosuch
holds 'a night that is refused leaves no folder' test ! -e n

# a mistake in a suite file is found before the first step, and what would be right is said, by night, run and check alike
# mistake LINES MESSAGE
mistake()
{
    printf '[default]\nctx = 64\nsteps = 1\n[a]\nvariant = resident\n[b]\n%b\n' "$1" > bad.suite
    night 64 ./bad.suite -o n
    says "$2"
    holds "a night leaves no folder: $2" test ! -e n
    for command in run check; do
        "$program" $command ./bad.suite > out 2> err < /dev/null
        holds "$command ends with 64: $2" test $? -eq 64
        says "$2"
    done
}
mistake 'variant = quest\nblk_num = 3' "bad.suite:8: key 'blk_num' belongs to none of the cases of [b]: variant quest has no option 'blk_num'; its own: "
mistake 'variant = hgca\nblk_num = x' "bad.suite:8: variant hgca: blk_num: 'x' is not"
mistake 'variant = resident\ndataset = trace/nosuch' 'bad.suite:8: [b] resident: trace nosuch: no such file'
mistake 'variant = scout\nfit = nosuch' 'bad.suite:8: [b] scout: fit nosuch: no such file'
mistake 'variant = resident\ndevice = nosuch' "bad.suite:8: [b] resident: device 'nosuch'"
mistake 'suite = lse_merge\ncase = gallery\nby = avx2' 'bad.suite:6: section b: no case is possible: '

# an -o that cannot be: as `habench run` has it
for to in /proc/x /dev/null/x ./suites/smoke.suite; do
    "$program" run -q resident:ctx=64,layers=1,steps=1 -o "$to" > out 2> said < /dev/null
    night $? -o "$to"
    holds "a night says of -o $to what a run says of it: $(cat said err)" cmp -s said err
done

# the machine is fit, or is not: both are said of the first night
timeout 900 "$program" nightly -q -o nights/1 --against nights --shuffle 3 --notify 'cat > told' > out 2> err < /dev/null
code=$?
# a busy host takes all of a case's time: then not all ran, and it is said
holds "a first night ends with 0 or 40, or with 20 on a busy host, not with $code" \
    sh -c "[ $code -eq 0 ] || [ $code -eq 40 ] || { [ $code -eq 20 ] && grep -q 'something else used the cores' out; }"
agrees nights/1 $code
says 'nights: no earlier night in it'
holds 'and it is no mistake' test ! -s err
[ "$code" -ne 0 ] || holds 'a night that found nothing keeps its program' cmp nights/last_good/habench "$program"
says 'nothing to compare with'
for file in night.json report.txt doctor.txt probe/env.json check/cases.csv run/figures.csv; do
    holds "nights/1/$file" test -s "nights/1/$file"
done
holds 'who is told gets one line of JSON' test "$(wc -l < told)" -eq 1
holds 'which has the code' grep -q "\"exit\":$code" told
rows=$(grep -c '"resident:' nights/1/run/cases.csv)
holds "each case in five processes, not $rows" test "$rows" -eq 5
night 64 -o nights/1
says 'not empty'

# one plan of the CPU kernels for all steps, which their commands show: the one asked for, or a quick choice, whoever keeps it.
# plan_of NIGHT STEP: what the step's command says; plans NIGHT: of all rows
plan_of() { tr -d ' \n' < "$1/night.json" | grep -o "\"name\":\"$2\",\"command\":[^]]*" | sed -n 's/.*"--plan","\([^"]*\)".*/\1/p'; }
plans() { cat "$1"/*/cases.csv | tr -d '\r' | sed -n 's/.*,"\([^"]*\)","[^"]*"$/\1/p; s/.*,"\([^"]*\)",$/\1/p' | grep -v '^plan$' | sort -u; }
# plan CPU: one of that CPU. Without a home a night has none but what HABENCH_PLAN names
plan()
{
    echo schema_version,cpu,build,threads,dtype,pattern,isa,ahead_kind,ahead_bytes,taken,ratio,ratio_lo,ratio_hi,ratio_constants
    for type in f32 f16 bf16; do echo "1,\"$1\",test,1,$type,linear,c,none,0,1,0.5,0.4,0.6,0.5"; done
}
plan nobody > own.csv
cpu=$("$program" check -q resident:ctx=64,layers=1,steps=1 --plan own.csv 2>&1 | sed -n "s/.* this CPU is '\(.*\)'; .*/\1/p")
holds 'a CPU has a name' test -n "$cpu"
plan "$cpu" > own.csv
night 64 -o no --plan nosuch.csv
holds 'a night without its plan leaves no folder' test ! -e no
holds 'a night without one says none' test -z "$(plan_of nights/1 run)"

# the same night as the base, a thousand times as fast: no load hides it, and the first runs tell it
cp -r nights faster
awk 'match($0, /"step_ns","[0-9.]+"/) {
    $0 = substr($0, 1, RSTART - 1) "\"step_ns\",\"" substr($0, RSTART + 11, RLENGTH - 12) / 1000 "\"" substr($0, RSTART + RLENGTH)
} { print }' nights/1/run/figures.csv > faster/1/run/figures.csv
night 30 -o slow --against faster --plan own.csv
agrees slow 30
for step in check run again-1; do holds "slow: $step has the plan" test "$(plan_of slow $step)" = own.csv; done
holds "rows have one plan: $(plans slow)" test "$(plans slow | wc -l)" -eq 1
holds 'what is suspicious was run again' test -s slow/again-1/figures.csv
holds 'its cases alone' test "$(cut -d, -f3 slow/again-1/cases.csv | sort -u | wc -l)" -le 3

# a base that was disturbed says nothing; both builds in turns do. The last good one is a program that says what it took. (All else
# of the base is a thousand times as bad, so that nothing is slower.)
cp -r nights never
awk 'function take(line, i, c, quoted) {
    n = 1; field[1] = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "\"") quoted = !quoted
        if (c == "," && !quoted) field[++n] = ""; else field[n] = field[n] c
    }
}
{
    take($0)
    for (i = 1; i <= n && FNR == 1; i++) at[FILENAME, field[i]] = i
    value = at[FILENAME, "\"value\""]; better = field[at[FILENAME, "\"better\""]]; disturbed = at[FILENAME, "\"disturbed\""]
    if (FNR > 1 && value && better == "\"less\"") field[value] = substr(field[value], 2, length(field[value]) - 2) * 1000 + 1000
    if (FNR > 1 && value && better == "\"more\"") field[value] = substr(field[value], 2, length(field[value]) - 2) / 1000
    if (FNR > 1 && disturbed && /"resident:/) field[disturbed] = "\"load\""
    for (i = 1; i <= n; i++) printf "%s%s", field[i], i < n ? "," : "\n" > ("never" substr(FILENAME, 7))
}' nights/1/run/cases.csv nights/1/run/figures.csv
mkdir -p never/last_good
echo before > never/last_good/version
for took in 1 1000000000; do
    cat > never/last_good/habench <<S
#!/bin/sh
case "\$*" in
--version) echo habench before ;;
*--dry-run*) for word; do case "\$word" in *:*) echo "\$word" ;; esac; done ;;
*) echo '{"row":"case","verdict":"pass"}'
   echo '{"row":"figure","figure":"step_ns","unit":"ns","value":$took}' ;;
esac
S
    chmod +x never/last_good/habench
    rm -rf turns
    timeout 900 "$program" nightly -q -o turns --against never --plan own.csv --max-time 15m > out 2> err
    code=$?
    if [ $took = 1 ]; then holds "slower than the last good build is 30, not $code" test $code -eq 30
    else holds "as fast as that is 0, not $code" test $code -eq 0; fi
    agrees turns $code
    says 'in turns with the last good build, before: NEW '
done
holds 'the program of that night is the last good one' cmp never/last_good/habench "$program"

# a case that the base had, and one that is wrong in it: gone is not all
cp -r nights more
sed 's/resident:/quest:/' nights/1/run/cases.csv | tail -n +2 >> more/1/run/cases.csv
"$program" compare more nights > out 2> err
holds 'a case that is gone is exit code 20' test $? -eq 20
says 'gone'

# a suite of one's own, by its path
sed 's/ cpu$//' suites/nightly.suite > mine.suite
night 20 ./mine.suite -o mine --processes 1 --against nights
holds 'the suite that was asked for ran' sh -c "grep -q '\"resident:' mine/run/cases.csv && ! grep -q '\"cpu:' mine/run/cases.csv"

# one process says nothing, and no case of it says so
XDG_CACHE_HOME=/nowhere HOME='' night 20 -o single --against nights --processes 1 --plan constants
agrees single 20
holds 'one process says nothing, or the host was busy' grep -q 'nothing can be said\|something else used the cores' out
for step in check run; do holds "single: $step has the built-in constants" test "$(plan_of single $step)" = constants; done

# a quick choice that is kept from before, where no plan is shipped: some CPUs have one
mkdir -p cache/habench
mv kernels shipped
cp own.csv "cache/habench/$(echo "quick-$cpu-$("$program" --version | cut -d ' ' -f 2-)" | tr -c 'A-Za-z0-9\n' -).csv"
HABENCH_PLAN='' XDG_CACHE_HOME=$dir/cache night 20 -o quick --against nights --processes 1
mv shipped kernels
for step in check run; do holds "quick: $step has the choice" test "$(plan_of quick $step)" = quick/plan.csv; done
holds 'which lies in the folder' grep -q 'f16,linear,c,none\|"f16","linear","c","none"' quick/plan.csv
holds "and is the plan of rows: $(plans quick)" test "$(plans quick)" = "$(plans slow)"

# a first night in which something is wrong
cp suites/lse_merge.suite right
printf '[a]\nsuite = lse_merge\ncase = all_empty\nby = both_empty_nan\nform = natural\ndtype = f32\n' > suites/lse_merge.suite
night 10 -o wrong --max-time 3m
agrees wrong 10
says 'got nan, want -inf'
mv right suites/lse_merge.suite

# a night among its own base is not held against itself
cp -r slow nights/2
"$program" compare nights nights/2 > out 2> err
says 'beside 1 night of the base'
rm -r nights/2

# no time: nothing is dropped in silence
night 20 -o short --max-time 1ms
agrees short 20
says 'not run: '
holds 'each night.json is as its schema says' "$schema" test_schema "$night_schema" nights/1/night.json slow/night.json short/night.json

# what is no UTF-8 is in no way of what is said, in night.json neither, which is JSON
bad=$(printf 'bad\377')
night 20 -o "$bad/$bad" --against "$bad" --max-time 1ms
for text in '"folder": "bad?/bad?"' '"bad?/bad?/check"' 'bad?: no earlier night in it'; do
    holds "night.json has $text" grep -qF -e "$text" "$bad/$bad/night.json"
done

# a night under load says which program it is, and asks for no more time
cp "$(command -v sh)" busybody
busy=
for _ in $(seq "$(nproc)"); do
    timeout 120 ./busybody -c 'while :; do :; done' &
    busy="$busy $!"
done
printf '[a]\nvariant = resident\nctx = 64\nlayers = 1\nsteps = 1\ntime = 10ms\n[b]\nsuite = cpu_kernels\nkernel = attend\nthreads = 1000\n' > busy.suite
timeout 300 "$program" nightly -q ./busy.suite -o busy --processes 2 --max-time 40s > out 2> err < /dev/null
code=$?
# shellcheck disable=SC2086 # each is a word
kill $busy
holds "under load a night ends with 40, or 20, or 0 where disturbances are rehearsed, not with $code" sh -c "[ $code -eq 40 ] || [ $code -eq 20 ] || [ $code -eq 0 ]"
agrees busy $code
holds 'it names the program, second to its verdict' sh -c "sed -n 2p out | grep -q \"^load.*'busybody' [0-9]*%.*stop other programs\""
holds 'and asks for no more time' sh -c '! grep -q -e --max-time out'
says 'section b: no case is possible: 1000 threads: this process has '

# two devices share the time of a step
mkdir one
cp "$(dirname "$program")/ha_null.so" one/x.so
timeout 300 "$program" nightly -q ./busy.suite -o devices --device host --device one/x.so --max-time 20s > out 2> err < /dev/null
holds 'the first device has at most half of it' \
    sh -c "tr -d ' \n' < devices/night.json | grep -o '\"name\":\"run\",\"command\":[^]]*' | grep -q '\"--max-time\",\"[0-9]\{1,4\}ms\"'"
holds 'and the second the rest' \
    sh -c "tr -d ' \n' < devices/night.json | grep -o '\"name\":\"run-x.so\",\"command\":[^]]*' | grep -v -q '\"--max-time\",\"1ms\"'"

# a device is said by the name under which it was asked for, in all steps
"$program" probe --device "$(dirname "$program")/ha_null.so" -o probed > out 2> err
holds 'the name of a plugin is its path' grep -q '"asked": ".*/ha_null.so"' probed/env.json

# a folder that cannot be written any more: what is said agrees with the code, names the cause, and is all that there is
(trap '' XFSZ; ulimit -f 2; timeout 900 "$program" nightly -q -o full 2>&1 < /dev/null; echo "code $?") | cat > out
holds 'a night that cannot be written is said to be none' grep -q '^not all ran: night of' out
says 'night.json: cannot write: File too large; mend that, and begin a new night'
says 'code 20'
holds 'night.json has no verdict' sh -c '! grep -q "\"verdict\":" full/night.json'

# plugins of one name in two folders have steps of their own
mkdir a b
cp "$(dirname "$program")/ha_null.so" a/x.so
cp a/x.so b/x.so
night 20 -o plugins --device host --device a/x.so --device b/x.so --max-time 1ms
for step in doctor doctor-x.so doctor-2-x.so; do holds "plugins/$step.txt" test -s "plugins/$step.txt"; done

# a signal ends the step at hand, and the night says so
(exec timeout -s INT 3 "$program" nightly -q -o "$dir/cut" > out 2> err < /dev/null)
holds 'a night that was cut says what it is' grep -q 'ended by a signal' out
agrees cut 20
holds 'no process is left' nobody_is_left

# a night that is killed leaves no step behind, which would run beside the next: its step is stopped, so that it cannot end by itself
echo "$dir/killed/" > step
steps() { grep -l -s -F -f step /proc/[0-9]*/cmdline | cut -d / -f 3; }
"$program" nightly -q -o "$dir/killed" > out 2> err < /dev/null &
night=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=$(steps)
    [ -n "$left" ] && break
    sleep 1
done
holds 'a step of the night is found' test -n "$left"
# shellcheck disable=SC2086 # each is a word
kill -STOP $left
kill -KILL "$night"
holds 'no step outlives a night that was killed' nobody_is_left
# shellcheck disable=SC2046
kill -KILL $(steps) 2> /dev/null
cd / || exit 1
finish
