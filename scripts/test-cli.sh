#!/bin/sh
# test-cli.sh PROGRAM SCOPE: the command line from outside: exit codes, messages, what goes where. Nothing here asks how fast
# this machine is, and each command ends by itself within two minutes or is a failure. SCOPE "small" leaves out what
# measures a link, which is half a gigabyte to write before the first move.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1
scope=$2
small='resident:ctx=64,layers=1,steps=1'

# lines FILE: how many it has
lines() { wc -l < "$1"; }

expect 0 'Usage: habench' --help
expect 0 'habench COMMAND --help' --help
expect 0 'habench ' --version
expect 0 'Exit code: 0 everything right' run --help
expect 0 '--mutants' check --help
expect 0 'Usage: habench list' list --help
expect 0 'habench COMMAND --help' -h
expect 0 'habench COMMAND --help' help
expect 0 'Usage: habench list' help list
expect 0 'Usage: habench list' list -h
expect 64 "unknown command 'lst'; did you mean 'list'?" help lst
expect 0 'other bits' compare --help
expect 64 'Usage: habench'
expect 64 "unknown command 'rnu'; did you mean 'run'?" rnu
expect 64 'unrecognized option' --frobnicate
expect 64 "unknown option '--thraeds'; did you mean '--threads'?" run --thraeds 3 smoke
expect 64 "unknown option '--maxtime'; did you mean '--max-time'?" run -q --maxtime=3s smoke
expect 64 "unknown option '--max-time'" list --max-time=3s suites
expect 64 "unknown option '--mutants'" run --mutants smoke
expect 64 'which SUITE or CASE?' run
expect 64 "requires an argument" run -o
expect 64 "not a time such as 90s" run --max-time 90 smoke
expect 64 '--resume needs -o' run --resume smoke
expect 64 'leave SUITE and CASE out' check --mutants smoke
expect 64 'probe takes options only' probe smoke

expect 40 'needs as many cores' plan --threads 1024 -o "$dir/plan.csv"

# history: of published folders, of the schema of old and of now
mkdir "$dir/nights"
for night in 2026-11-21-epyc-zen4-2core 2026-11-22-xeon-2core; do ln -s "$PWD/results/$night" "$dir/nights/$night"; done
expect 64 'of which DIR? a folder of nights' history
expect 64 'of which DIR? a folder of nights' history "$dir/nights" results
expect 64 'there is no such folder' history "$dir/nosuch"
expect 64 "'md' is neither table nor json" history "$dir/nights" --format md
expect 64 "cases fits 'nowhere'; the first is resident:" history "$dir/nights" -f nowhere
expect 64 "unknown figure 'stepns'; did you mean 'step_ns'?" history "$dir/nights" --figure stepns
expect 0 'machine 2 from 2026-11-22T17:57 on, another one than machine 1 (cpu: AMD EPYC -> Intel' history "$dir/nights"
expect 0 '"date_utc":"2026-11-22T17:57:45Z","build":"f001271","value":321719.629' history "$dir/nights" -f resident,ctx=1900 --format json
holds 'history: a line for each night of each figure' test "$(grep -c '^{"row":"history",.*,"processes":1,"change":false}$' "$dir/out")" -eq 4
holds 'history: and one of all' test "$(tail -n 1 "$dir/out" | grep -c '^{"row":"histories","nights":2,"machines":2,"figures":4,"changed":0,"age":0,.*}$')" -eq 1

# compare: two machines side by side; the published records have a process a case
set -- results/2026-11-21-epyc-zen4-2core results/2026-11-22-xeon-2core
expect 20 'B is 0.927 times as fast as A (0.837 to 1.03) over 36 cases: faster in 0' compare "$@"
expect 20 '8192          8192, 23.49 GiB  resident:dataset=sinks,dtype=f16' compare "$@" --limit 1ms
expect 20 '"row":"limit","index":1,"of":"resident:dataset=sinks,dtype=f16","limit_ns":1000000,' compare "$@" --limit 1ms --format json
expect 64 "'C' is none of these folders, nor A, B, ..." compare "$@" --price C=1/h
expect 64 "is not a machine's price an hour, as A=2.1/h" compare "$@" --price 2026-11-22-xeon-2core=1
cp -r "$2" "$dir/same"
expect 64 'these folders are of one' compare "$2" "$dir/same" --limit 1ms
expect 64 'leave --fleet out' compare --fleet "$dir/nights" --limit 1ms

# compare --fleet: two machines of one kind are too few, and one of another kind is alone
expect 64 '--against goes with --fleet' compare results results --against results
expect 64 'leave BASE and NEW out' compare --fleet "$dir/nights" results
expect 64 'there is no such folder' compare --fleet "$dir/nosuch"
mkdir "$dir/something" "$dir/something/else"
expect 64 'no machine in it: neither a record nor a rank file, nor is one expected: name the folder' compare --fleet "$dir/something"
mkdir "$dir/fleet"
for machine in node1 node2; do ln -s "$PWD/results/2026-11-22-xeon-2core" "$dir/fleet/$machine"; done
expect 40 'not fit to say: 2 machines in 1 group, 2 not judged; too few machines of one kind' compare --fleet "$dir/fleet"
printf 'node1\nnode2\nnode3\n' > "$dir/fleet/expected"
expect 20 'node3: expected, and there is no record of it' compare --fleet "$dir/fleet" --junit "$dir/fleet.xml"
holds 'compare --fleet: JUnit has who is missing' grep -q 'name="node3"><error message="missing">' "$dir/fleet.xml"

# the one file of -o and --junit: a link stays, and a pipe and stdout are written directly; not of /dev/null, which a
# program that is wrong would replace
# one_file CODE ARG...: ends with the exit code, where the path of the file is its last argument
one_file()
{
    want=$1
    shift
    : > "$dir/real"
    ln -sf real "$dir/link"
    timeout 600 cat "$dir/fifo" > "$dir/piped" &
    for file in "$dir/fifo" "$dir/link" "$dir/stdout"; do
        timeout 600 "$program" "$@" "$file" > "$dir/out" 2> "$dir/err" < /dev/null
        holds "$* $file: exit code" test $? -eq "$want"
        [ "$file" != "$dir/stdout" ] || holds "$*: stdout is written" grep -qF "$(head -n 1 "$dir/real")" "$dir/out"
    done
    wait $!
    holds "$*: the link stays, and its file is written" test -h "$dir/link" -a -s "$dir/real"
    holds "$*: a pipe is written" cmp "$dir/piped" "$dir/real"
    timeout 600 "$program" "$@" "$dir/fleet" > "$dir/out" 2> "$dir/err" < /dev/null
    holds "$*: a folder is one line" grep -q 'cannot write: it is a folder; give the name of a file$' "$dir/err"
}
mkfifo "$dir/fifo"
ln -s /proc/self/fd/1 "$dir/stdout" # as /dev/stdout
for format in csv json md openmetrics; do one_file 0 report results/2026-11-22-xeon-2core --format "$format" -o; done
one_file 20 compare --fleet "$dir/fleet" --junit
one_file 20 compare results/2026-11-21-epyc-zen4-2core results/2026-11-22-xeon-2core --junit
expect 20 '"machines":3,"records":2,"expected":3' compare --fleet "$dir/fleet" --format json
cp -r "$dir/fleet" "$dir/fleet2"
expect 20 ': 2 machines in both' compare --fleet "$dir/fleet" --against "$dir/fleet2"

# folders that stand beside each other are different ones
one=results/2026-11-21-epyc-zen4-2core other=results/2026-11-22-xeon-2core
expect 64 "$one is named twice: name different folders" compare "$one" "$one"
expect 64 "$one is named twice: name different folders" compare "$one" "$other" "$one"
expect 64 "$one and $dir/nights/2026-11-21-epyc-zen4-2core are the same folder" compare "$one" "$dir/nights/${one#*/}"
expect 64 "$one and $one/ are the same folder: name different ones" report "$one" "$one/" --format csv
expect 64 "$dir/fleet and $dir/fleet/ are the same folder" compare --fleet "$dir/fleet" --against "$dir/fleet/"
mkdir "$dir/only"
ln -s "$PWD/$one" "$dir/only/night"
expect 64 "$dir/only: no night in it but those of $one" compare "$dir/only" "$one"

# doctor: fit or not hangs on the machine, and so on who else is here; what it says and how it ends are one
expect 64 'doctor takes options only' doctor smoke
expect 64 "'xml' is neither table nor json" doctor --format xml
expect 0 'Exit code: 0 fit to be measured' doctor --help
for words in doctor 'doctor --device host' 'doctor --device null'; do
    # shellcheck disable=SC2086 # words
    timeout 600 "$program" $words --format json > "$dir/out" 2> "$dir/err" < /dev/null
    got=$?
    unfit=$(grep -c '"check":.*"verdict":"unfit"' "$dir/out")
    test "$unfit" -eq 0 && want='0 "fit"' || want='40 "unfit"'
    holds "$words: ends with $want" test "$got \"$(tail -n 1 "$dir/out" | sed -n 's/^{"row":"doctor","verdict":"\([a-z]*\)","unfit":'"$unfit"',.*}$/\1/p')\"" = "$want"
    holds "$words: a line for each check" test "$(grep -c '^{"row":"doctor","check":"[A-Za-z -]*","verdict":"[a-z]*","found":".*","why":".*","mend":".*"}$' "$dir/out")" -eq $(($(lines "$dir/out") - 1))
    holds "$words: nothing on stderr" test ! -s "$dir/err"
    sed -n 's/.*"check":"\([^"]*\)".*/\1/p' "$dir/out" | sort > "$dir/json"
    # shellcheck disable=SC2086
    timeout 600 "$program" $words 2> "$dir/err" < /dev/null | sed -n -E 's/^(unfit|warning|unknown|fit) +([A-Za-z -]*[A-Za-z])  .*/\2/p' | sort > "$dir/table"
    holds "$words: the table has the same checks" cmp -s "$dir/json" "$dir/table"
done

expect 64 "unknown variant or suite 'smok'; did you mean 'smoke'?" run --dry-run smok
expect 64 "unknown variant or suite 'hgcaa'; did you mean 'hgca'?" run --dry-run hgcaa
expect 64 'recency_split is a file of cases: choose from it by -f KEY=VALUE' run --dry-run recency_split:ctx=64
expect 64 'no such suite file' run --dry-run "$dir/no.suite"
expect 64 "unknown variant or suite 'residnet'; did you mean 'resident'?" run --dry-run residnet:ctx=1
expect 64 "unknown key 'thread'; did you mean 'threads'?" run --dry-run resident:thread=1
expect 64 "unknown dtype 'fp16'; did you mean 'f16'?" run --dry-run resident:dtype=fp16
expect 64 "unknown dataset 'sink'; did you mean 'sinks'?" run --dry-run resident:dataset=sink
expect 64 "ctx: '99999999999999999999' is not a whole number up to" run --dry-run resident:ctx=99999999999999999999
expect 64 'head_dim: 60 is not a multiple of 8' run --dry-run resident:head_dim=60
expect 64 "-f: unknown key 'dtyp'; did you mean 'dtype'?" run --dry-run smoke -f dtyp=f16
expect 64 'none of the' run --dry-run smoke -f nonesuch
expect 64 "--seed: 'x' is not a whole number" run --dry-run smoke --seed x
expect 0 'seed=18446744073709551615' run --dry-run "$small" --seed 18446744073709551615
expect 64 'is not a whole number up to 2^64 - 1' run --dry-run "$small" --seed 18446744073709551616
expect 64 'is not a whole number from 1 to 1000' run --processes 1.5 smoke
expect 64 'neither table nor json' run --format jsn smoke
expect 64 'not a time such as 90s' run --case-time 1 smoke
expect 64 "unknown team 'x'; it is one of: openmp own" run --team x smoke
expect 0 'team=own' run --dry-run "$small" --team own
expect 0 'isa=c' --isa c run --dry-run "$small"
expect 0 'isa=c' list cases "$small" --isa c
expect 64 "--threads: '-1' is not a whole number" run --dry-run smoke --threads=-1
expect 64 "unknown device 'hots'; did you mean 'host'?" check "$small" --device hots
expect 64 "quantum" check "$small" --device quantum
expect 64 "unknown isa 'avx22'; did you mean 'avx2'?" check "$small" --isa avx22
expect 64 "unknown instruction set 'avx22'; did you mean 'avx2'?" check "$small" --without avx512,avx22
expect 64 'c needs no extension and cannot be masked' list kernels --without c
expect 64 'name them all at once' check "$small" --without avx2 --without neon
expect 0 'c            available, used by default' list kernels --without avx2,neon
expect 77 'instruction set avx2:' check "$small" --isa avx2 --without avx2
expect 77 'instruction set amx:' check "$small" --isa amx --without avx2
expect 0 '; c kernels; habench' check "$small" -q --without avx2,neon
masked=${HABENCH_WITHOUT-}
export HABENCH_WITHOUT=avx2,neon
expect 0 'c            available, used by default' list kernels
expect 0 '; c kernels; habench' check "$small" -q
HABENCH_WITHOUT=avx2,avx22
expect 64 "HABENCH_WITHOUT: 'avx22' is no instruction set that can be masked" list kernels
HABENCH_WITHOUT=$masked
expect 0 ', team own' check "$small" -q --team own

# how many tokens fit beside a model: what the paper of hcattention says of Llama-3-8B, and what it leaves out
expect 0 'Usage: habench capacity' capacity --help
expect 0 'weights 16.06 GB (14.96 GiB); memory 85.90 GB (80.00 GiB)' capacity llama-3-8b --memory 80GiB --tokens 4000000
cp "$dir/out" "$dir/capacity"
says() { tr -s ' ' < "$dir/capacity" | grep -q -e "^$1\$"; }
holds 'a full cache is 128 KiB of a token' says 'resident 16 131072 0 0 100% .* 524.3 540.3 0.0 no'
holds 'half of it is up' says 'hcattention:keys=exact 16 65536 65536 384 50% .* 262.1 279.7 263.2 no'
holds '16 bits: 65.5 GB, 33.6 MB of books or 16.8' says 'hcattention:dims=4,c=8192 16 16384 65536 384 12.5% 33.55 ( 16.78) .* 65.5 83.2 263.2 yes'
holds '13 bits: 53.2 GB' says 'hcattention:dims=4,c=8192,pack=1 13 13312 65536 384 10.16% 33.55 ( 16.78) .* 53.2 70.9 263.2 yes'
holds 'separate books: 1.07 GB or 0.54' says 'hcattention:dims=4,c=8192,books=separate 16 16384 65536 384 12.5% 1073.74 (536.87) .* 65.5 84.2 263.2 yes'
expect 0 'fit' capacity llama-3-8b --memory 80GB --tokens 4000000 --format json
holds 'a JSON line for each' test "$(grep -c '^{"row":"capacity",.*}$' "$dir/out")" -eq 20
holds '16 bits do not fit 80 GB' grep -q '"case":"hcattention:dims=4,c=8192",.*"fit":false' "$dir/out"
holds '13 bits do' grep -q '"case":"hcattention:dims=4,c=8192,pack=1",.*"tokens":46[0-9]*,.*"fit":true' "$dir/out"
# shellcheck disable=SC2046 # words
expect 0 'hcattention:' run --dry-run $(sed 's/.*"case":"\([^"]*\)".*/\1/' "$dir/out")
holds 'each is a case' test "$(lines "$dir/out")" -eq 20
model=layers=2,heads=4/2,head_dim=64
expect 0 'memory 0.00 GB' capacity "$model,weights=1B" --memory 1MB
holds 'nothing on stderr' test ! -s "$dir/err"
expect 0 'weights 8.50 GB' capacity llama-3-8b,weights=8.5GB --tokens 1
expect 64 "unknown model 'llama-3-9b'; did you mean 'llama-3-8b'?" capacity llama-3-9b --memory 80GB
expect 64 "unknown model 'bogus'; it is one of: llama-3-8b llama-3.1-8b" capacity bogus --memory 80GB
holds 'one line says so' test "$(lines "$dir/err")" -eq 1
expect 64 'which MODEL?' capacity --memory 80GB
expect 64 'which MODEL?' capacity small small --memory 80GB
expect 64 'of how much? --memory 80GiB' capacity small
expect 64 'the weights of llama-3-8b are 16060522496 bytes, and --memory is 16060522495' capacity llama-3-8b --memory 16060522495B
expect 0 ' 0' capacity llama-3-8b --memory 16060522496B
for size in '' 0GB 80 80G -80GB 1e3GB 99999999999TiB 18446744073709551616B; do
    expect 64 --memory capacity small "--memory=$size"
    expect 64 weights capacity "small,weights=$size" --memory 80GB
done
for tokens in '' 0 -1 1.5 4M 1099511627777 18446744073709551617; do
    expect 64 'is not a whole number from 1 to 2^40' capacity small "--tokens=$tokens"
done
expect 0 'hcattention' capacity "layers=1024,heads=1024,head_dim=576,weights=1B" --tokens 1099511627776
holds 'what is too much for 64 bits is no number' grep -q '^resident .* - *- *-$' "$dir/out"
expect 64 "layers: '0' is not a whole number from 1 to 1024" capacity small,layers=0 --memory 1GB
expect 64 "layers: '1025' is not" capacity small,layers=1025 --memory 1GB
expect 64 'heads: 7 query heads are not a multiple of 2' capacity small,heads=7/2 --memory 1GB
expect 64 "heads: '/2' is not" capacity small,heads=/2 --memory 1GB
expect 64 'head_dim: 60 is not a multiple of 8' capacity small,head_dim=60 --memory 1GB
expect 64 "unknown key 'layer'; did you mean 'layers'?" capacity small,layer=4 --memory 1GB
expect 64 "'small' is not KEY=VALUE" capacity layers=4,small --memory 1GB
expect 64 'weights=... is missing' capacity "$model" --memory 1GB
expect 64 'is too long for a model' capacity "$(printf '%5000s' x | tr ' ' x)" --memory 1GB
# what it computes is what the variants ask for: K and V on either side, books and tables
for case in resident hcattention:keys=exact hcattention:dims=4,c=8192,pack=1 hcattention:dims=2,c=8192,books=separate; do
    "$program" capacity "$model,weights=1B" --tokens 100 --format json | grep -F "\"case\":\"$case\"" > "$dir/said"
    more=,fresh=63
    [ $case != resident ] || more=
    expect 0 '1 passed' check -q --format json "$case$([ $case = resident ] && echo : || echo ,)ctx=99,steps=1,layers=2,heads=4/2,head_dim=64$more"
    number() { sed -n "s/.*\"$1\":\([0-9]*\)[,}].*/\1/p" "$2" | head -1; }
    newest=$([ $case = resident ] && echo 0 || echo $((64 * 2 * 2 * 2 * 64 * 2)))
    holds "$case: K and V on the device" test $(($(number cache_bytes "$dir/said") + newest)) -eq "$(number kv_gpu_bytes "$dir/out")"
    holds "$case: in host memory" test "$(number host_cache_bytes "$dir/said")" -eq "$(number kv_cpu_bytes "$dir/out")"
    holds "$case: books and tables" test $(($(number books_bytes "$dir/said") + $(number fixed_bytes "$dir/said") - newest)) -eq "$(number meta_gpu_bytes "$dir/out")"
done

# what is empty, too long, or no text
for option in --output --device --filter --isa --team --dump; do
    expect 64 'is missing' check "$small" $option ''
done
expect 64 'is missing' check lse_merge --exec=
expect 64 'is missing' check --replay=
expect 64 "',' has no term" check "$small" -f ,
expect 64 'the path is longer than' check "$small" -o "$(printf '%5000s' x | tr ' ' x)"
expect 64 'not a time' check "$small" --max-time 5124095h
expect 0 '1 passed' check -q "$small" --max-time 2562047h
escape=$(printf '\033[31m')
expect 64 "unknown command '?[31mrun'" "${escape}run"
expect 64 "unknown option '--?[31mx'" check "--${escape}x"
expect 64 "unknown instruction set '?[31m'" check --without "$escape"
expect 64 "ctx: '?[31m'" check "resident:ctx=$escape"

printf '[a]\nvariant = resident\nthread = 1\n' > "$dir/typo.suite"
expect 64 "typo.suite:3: unknown key 'thread'; did you mean 'threads'?" run "$dir/typo.suite"
printf '[a]\nvariant = resident\nctx = 64\nhead_dim 64\n' > "$dir/syntax.suite"
expect 64 'syntax.suite:4: neither [section] nor key = value' check "$dir/syntax.suite"
printf '\357\273\277[a]\r\nvariant = resident\r\nctx = 64 128\r\nsteps = 1\r\n' > "$dir/two.suite" # of an editor elsewhere

# a name is that of a suite of habench, whatever lies in the current folder, and a file goes by its path
mkdir "$dir/suites"
for name in smoke lse_merge mine; do printf '[a]\nvariant = resident\nctx = 64\n' > "$dir/suites/$name.suite"; done
real=$(realpath "$program")
holds 'a suite of habench stays' sh -c "cd '$dir' && '$real' run --dry-run smoke | grep -q '^hgca:'"
holds 'a suite without a file stays' sh -c "cd '$dir' && '$real' check --dry-run lse_merge | grep -q '^lse_merge:'"
(cd "$dir" && "$real" run --dry-run mine) > "$dir/out" 2> "$dir/err"
holds 'another name is none' grep -q "unknown variant or suite 'mine'" "$dir/err"
holds 'a path is a file' test "$(cd "$dir" && "$real" run --dry-run suites/smoke.suite)" = resident:dataset=sinks,ctx=64,dtype=f16

# a path that is no regular file is one line, in place of an input that is waited for
for input in "$dir/fifo" "$dir" /dev/null; do
    says='is a pipe or a device, not a regular file; give the path of a file'
    [ "$input" != "$dir" ] || says='is a directory; give the path of a file'
    ln -s "$input" "$dir/no.suite"
    expect 64 "$dir/no.suite: $says" run --dry-run "$dir/no.suite"
    rm "$dir/no.suite"
    expect 64 "$says" check "$small" --device "$input"
    expect 64 "$says" check "$small" --plan "$input"
    expect 20 "$says" check "resident:dataset=trace/$input"
    expect 64 "$says" check "resident:dataset=flashinfer/$input"
    expect 20 "$says" check "hcattention:dataset=trace/english,ctx=1900,fit=$input"
    expect 20 "$says" check lse_merge --replay "$input"
done

# as many words as there are
# shellcheck disable=SC2046 # words
expect 0 'seed=600' run --dry-run $(seq -f "$small,seed=%g" 600)
holds 'no word is lost' test "$(lines "$dir/out")" -eq 600

# stdout has the ids and nothing else; stderr is empty; each id runs again as itself
expect 0 'resident:dataset=sinks,ctx=128,steps=1,dtype=f16' run --dry-run "$dir/two.suite"
holds 'two lines on stdout' test "$(wc -l < "$dir/out")" -eq 2
holds 'nothing on stderr' test ! -s "$dir/err"
expect 0 'ctx=128' list cases "$dir/two.suite" -f ctx=128
holds 'one line on stdout' test "$(wc -l < "$dir/out")" -eq 1
expect 0 "$(cat "$dir/out")" run --dry-run "$(cat "$dir/out")"
expect 0 'device=./ha_x.so' run --dry-run "$small" --device ./ha_x.so

expect 0 'smoke ' list suites
expect 0 'resident ' list variants
expect 0 'head_dim ' list keys
expect 0 'host ' list devices
expect 0 'used by default' list kernels
expect 0 'sinks ' list datasets
expect 0 'step_ns' list metrics
expect 64 "unknown list 'variant'; did you mean 'variants'?" list variant
expect 64 'metrics variants models defects operations' list bogus # each once, however many suites have it
expect 64 'list what?' list
expect 64 'of which SUITE or CASE?' list cases
expect 64 'of which suite file?' list coverage
expect 64 'did you mean' list coverage chekc
expect 64 "there is no suite file of 'device'" list coverage device
expect 64 '--seed means nothing to list coverage' list coverage check --seed 2
expect 0 ' 0 missing; ' list coverage check
holds 'and what is too dear is named' grep -qF '  excluded ctx=' "$dir/out"
expect 64 'takes no further word' list keys smoke

# the threads of a case that could not be made are not known
expect 40 'seed 1, device host' check resident:dataset=trace/english,ctx=5000
if grep -q ', 0 thread' "$dir/out"; then fail "a case that could not be made has 0 threads"; else pass; fi

# every suite of the tree can be read; of a file of steps there are no cases
for suite in $("$program" list suites | awk '!/\.steps$/ {print $1}'); do
    expect 0 ':' list cases "$suite"
    holds "$suite has cases" test "$(lines "$dir/out")" -gt 0
done

expect 0 '1 passed, 0 failed' check "$small"
expect 0 '1 passed, 0 failed' check "$small" --isa c -q
expect 10 '0 passed, 1 failed' check "$small" --device "$(dirname "$program")/t/wrong_scale.so"
holds 'the case is named on stderr' grep -q '^fail: resident:' "$dir/err"
HABENCH_TRACE=garbage
export HABENCH_TRACE
vendor=$(dirname "$program")/ha_null.so
for words in "check $small" "check $small --device null" "check $small --device $vendor" 'probe --device null' 'list devices' \
    'check cpu_kernels' "check lse_merge:case=gaps --device $vendor"; do
    # shellcheck disable=SC2086 # words
    expect 64 'HABENCH_TRACE=garbage: neither cupti nor events' $words
done
HABENCH_TRACE=cupti
expect 0 'warning: HABENCH_TRACE is not for device host: its spans are stamped by the device' check "$small"
for device in null "$vendor"; do
    expect 77 "warning: HABENCH_TRACE is not for device $device: its spans are stamped by nobody" check "$small" --device "$device"
done
expect 40 'warning: HABENCH_TRACE is not for device null: its spans are stamped by nobody' probe -q --device null
unset HABENCH_TRACE
# what computes nothing was not checked, and does not pass
expect 77 'nothing was checked' check "$small" --device null
holds 'it is not counted as passed' grep -q '^0 passed, 0 failed, 1 skipped$' "$dir/out"
expect 77 'unchecked' check copy_only:ctx=64,layers=1,steps=1
expect 0 '1 passed, 0 failed, 1 skipped' check copy_only:ctx=64,layers=1,steps=1 "$small"
expect 0 '2 passed, 0 failed' check "$dir/two.suite" -o "$dir/new"
holds 'each case in junit.xml has its time' test "$(grep -c '<testcase .* time="[0-9.]*"/>' "$dir/new/junit.xml")" -eq 2
holds 'the record names the suite file' grep -qF "\"path\": \"$dir/two.suite\"" "$dir/new/env.json"
expect 0 ' 0 failed' check smoke -f variant=resident -o "$dir/named"
holds 'of a suite of habench, no folder of this machine' grep -qF '"path": "suites/smoke.suite"' "$dir/named/env.json"
holds 'and what it was' grep -q '"digest": "[0-9a-f]\{16\}"' "$dir/new/env.json"
holds 'files are written' test -s "$dir/new/cases.csv"
# overview: full attention and each variant of a family, once on the trace and once on the generated context, with fits that are shipped
expect 0 'resident:' run --dry-run overview
cp "$dir/out" "$dir/overview"
"$program" list variants | awk '/^[a-z]/ && $3 != "unchecked" && $1 != "bmm" { print $1 }' > "$dir/variants"
holds 'there are variants' test "$(lines "$dir/variants")" -ge 19
while read -r variant; do
    for data in trace/english walk; do
        holds "overview has $variant on $data" test "$(grep -c "^$variant:dataset=$data," "$dir/overview")" -eq 1
    done
done < "$dir/variants"
holds 'and nothing else' test "$(lines "$dir/overview")" -eq $((2 * $(lines "$dir/variants")))
for fit in small hcattention_small clo_small walk hcattention_walk clo_walk duo_walk; do
    holds "overview reads the fit $fit" grep -q ",fit=$fit," "$dir/overview"
done

# -o of a complete record, pasted again, takes the next name and says so; one that did not end asks what is wanted
expect 0 "2 passed, 0 failed, 0 skipped; in $dir/new-2" check "$dir/two.suite" -o "$dir/new"
holds 'it says so on stderr, in one line' test "$(cat "$dir/err")" = "-o $dir/new: it is another run's; this one writes to $dir/new-2"
holds 'and what makes a page of it' grep -q "^a page of it: habench report '*$dir/new-2'* -o report.html$" "$dir/out"
expect 0 '1 passed' check -q "$small" -o "$dir/new"
holds 'and the next one' test -s "$dir/new-3/cases.csv"
expect 20 '--max-time is over' check -q lse_merge --max-time 1s -o "$dir/begun"
expect 64 'it has a run that did not end; add --resume to go on there, or give another name' check -q "$small" -o "$dir/begun"
expect 64 'the folder is not empty; give another name' probe -o "$dir/new"
expect 0 "a page of it: habench report '$dir/a name' -o report.html" check -q "$small" -o "$dir/a name"
expect 0 '1 passed' check -q "$small" -o "$dir/above/of/it"
holds 'folders above it are made' test -s "$dir/above/of/it/cases.csv"
expect 0 'passed, 0 failed' check "$dir/two.suite" -o "$dir/new" --resume
holds 'without a word' test ! -s "$dir/err"
expect 64 "options: there '', here 'isa=c'" check "$dir/two.suite" -o "$dir/new" --resume --isa c
mkdir "$dir/empty"
expect 0 '2 passed, 0 failed' check "$dir/two.suite" -o "$dir/empty"
expect 0 'warning: --resume: nothing is in the folder yet; the run begins' check "$small" -o "$dir/later" --resume
: > "$dir/file"
expect 64 'it is no folder' check "$small" -o "$dir/file"
expect 64 'nonesuch' check resident:dataset=trace/nonesuch,ctx=64

# a batch whose lengths a file says: 3 and 2 keys in pages of one token
batch=$dir/batch
mkdir "$batch"
tensor() { printf '{"type": "safetensors", "path": "x.safetensors", "tensor_key": "%s"}' "$1"; }
constant() { printf '"%s": {"type": "const", "value": %d}' "$1" "$2"; }
cache='{"shape": ["num_pages", "page_size", "num_kv_heads", "head_dim"]}'
random='{"type": "random"}'
values="\"k_cache\": $random, \"v_cache\": $random, \"sm_scale\": {\"type\": \"scalar\", \"value\": 0.5}"
values="$values, \"kv_indptr\": $(tensor p), \"kv_indices\": $(tensor i)"
cat > "$batch/some.json" << END
{"op_type": "gqa_paged", "axes": {$(constant num_qo_heads 4), $(constant num_kv_heads 2), $(constant head_dim 8), $(constant page_size 1)},
 "inputs": {"q": {"shape": ["batch_size", "num_qo_heads", "head_dim"]}, "k_cache": $cache, "v_cache": $cache,
            "kv_indptr": {"shape": ["len_indptr"]}, "kv_indices": {"shape": ["num_kv_indices"]}, "sm_scale": {"shape": null}}}
END
cat > "$batch/w.jsonl" << END
{"definition": "some", "workload": {"uuid": "a-b", "axes": {"batch_size": 2, "num_pages": 9}, "inputs": {"q": $random, $values}}}
END
header='{"p":{"dtype":"I32","shape":[3],"data_offsets":[0,12]},"i":{"dtype":"I32","shape":[5],"data_offsets":[12,32]}}'
printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" > "$batch/x.safetensors"
for number in 0 3 5 6 2 7 0 1; do printf "\\$number\\0\\0\\0"; done >> "$batch/x.safetensors"
file=dataset=flashinfer/$batch/w.jsonl
expect 0 'ctx 2+1, batch 2, q_len 1, heads 4/2 x 8, f16, 1 layer' check "resident:$file" "hgca:$file" "streaming:$file@a-b:0-1"
holds 'all of them' grep -q '^3 passed, 0 failed' "$dir/out"
expect 0 "hgca:$file,ctx=0,dtype=f16" run --dry-run "hgca:$file"
expect 0 '1 passed, 0 failed' check "$(cat "$dir/out")"
expect 40 'batch is 2 here, the case asks for 3: leave that key out' check "resident:$file,batch=3"
expect 20 'there is no line 2' check "resident:$file@2"

# several suites are one run, and one record
merge='cpu_kernels:kernel=merge,heads=4/2,head_dim=8' gaps='lse_merge:case=gaps,by=c,states=3,form=natural'
expect 0 '5 passed, 0 failed, 0 skipped' check "$small" link:piece=64K,method=pinned "$merge" "$gaps" -o "$dir/all"
for file in cases.csv cpu_kernels.csv lse_merge.csv; do
    holds "a row in $file" test "$(lines "$dir/all/$file")" -eq 2
    holds "$file begins as every file of rows does" grep -q \
        '^"schema_version","run_id","case_id","process","suite","mode","build","verdict","reason","samples",' "$dir/all/$file"
done
holds 'two rows in link.csv' test "$(lines "$dir/all/link.csv")" -eq 3
holds 'each case in junit.xml' test "$(grep -c '<testcase' "$dir/all/junit.xml")" -eq 5
holds 'figures of each suite' test "$(grep -c 'lse_merge:case=gaps' "$dir/all/figures.csv")" -gt 0
holds 'env.json has its schema and its device' sh -c "grep -q '\"schema_version\": 2' '$dir/all/env.json' && grep -q '\"devices\"' '$dir/all/env.json'"
expect 0 '6 passed, 0 failed, 0 skipped' check "$small" link:piece=64K,method=pinned "$merge" "$gaps" "$small,seed=2" -o "$dir/all" --resume
holds 'a row for the new case alone' test "$(lines "$dir/all/cases.csv")" -eq 3
holds 'and for no other one' test "$(lines "$dir/all/link.csv")" -eq 3
expect 64 'check' run "$small" -o "$dir/all" --resume

# a benchmark writes its files; the seed of the rows runs them again
cat > "$dir/bench.suite" << 'END'
[default]
time = 300ms
layers = 2
[hgca]
variant = hgca
ctx = 150
heads = 4/2
head_dim = 64
steps = 6
blk_size = 8
blk_num = 4
seed = 7
[small]
variant = resident
ctx = 64
END
expect 0 '1 passed, 0 failed' run -q "$dir/bench.suite" -f variant=hgca -o "$dir/bench"
holds 'a row' test "$(lines "$dir/bench/cases.csv")" -eq 2
holds 'a row of the summary' test "$(lines "$dir/bench/summary.csv")" -eq 2
holds 'accuracies of the first and last two steps, of two layers' test "$(lines "$dir/bench/accuracy.csv")" -eq 9
holds 'samples' test "$(lines "$dir/bench/samples.csv")" -gt 7
holds 'a trace' test "$(lines "$dir/bench/trace.json")" -gt 4
holds 'the id has the seed' grep -q 'hgca:.*seed=7' "$dir/bench/cases.csv"
holds 'what was said' grep -q '"command": ".*variant=hgca' "$dir/bench/env.json"
holds 'the suite that it is from' grep -q ',"bench","run",' "$dir/bench/cases.csv"
samples=$(grep -c ':.*seed=7' "$dir/bench/samples.csv")
if [ "$scope" = all ]; then
    # ceilings are measured once for the two suites that need them
    expect 0 '4 passed, 0 failed' run -q "$dir/bench.suite" link:piece=64K,method=pinned -o "$dir/bench" --resume
    holds 'the first one is not run again' test "$(lines "$dir/bench/cases.csv")" -eq 3
    holds 'nor is it measured' test "$(grep -c ':.*seed=7' "$dir/bench/samples.csv")" -eq "$samples"
    holds 'what the link is told' grep -qF 'There is no link here' "$dir/out"
    holds 'a row for each layout' test "$(lines "$dir/bench/link.csv")" -eq 3
    holds 'the verdicts are in junit.xml' grep -q 'link:layout=scattered,piece=64K,method=pinned' "$dir/bench/junit.xml"
    holds 'the ceilings are in env.json' grep -q '"link, host to device"' "$dir/bench/env.json"
fi

# an id that no file can be called by
long=$dir/$(printf "%$((230 - ${#dir}))s" x | tr ' ' x).safetensors
ln -s "$(pwd)/datasets/traces/english.safetensors" "$long"
expect 40 'names no file' check -q "resident:dataset=trace/$long,ctx=1900,layers=1,steps=1" --dump "$dir/dump"

# each case in processes of its own; rows as JSON, and nothing else on stdout
expect 0 '2 passed, 0 failed' check -q "$small" --processes 2 -o "$dir/two_processes"
holds 'a row for each process' test "$(lines "$dir/two_processes/cases.csv")" -eq 3
expect 0 '"key_row":"any"' check -q "$gaps" --format json
holds 'no member is there twice' test "$(grep -c '"row":.*"row":' "$dir/out")" -eq 0
expect 0 '"verdict":"pass"' check -q "$small" --format json
holds 'JSON lines alone' test "$(grep -vc '^{"row":"[a-z]*",.*}$' "$dir/out")" -eq 0

# a case that takes too long is an error, and the next one runs
expect 40 '1 passed, 1 failed' check -q resident:ctx=64,layers=1,steps=100000 "$small" --case-time 1s
holds 'the case is named' grep -q '^error: resident:.*steps=100000' "$dir/err"

expect 64 '--threads means nothing to these cases' check "$gaps" --threads 3
expect 64 '--exec means nothing to these cases' check "$small" --exec y
expect 64 '--exhaustive means nothing to these cases' check --exhaustive smoke
expect 64 '--random draws its cases' check --random 5 --mutants
expect 64 "is not a time such as" check --random soon
expect 64 '--random draws from suites and variants' check --random 5 smoke
expect 64 '--random draws from suites and variants' check --random 300ms resident:ctx=9 smoke
expect 64 "did you mean 'head_dim'" check resident:hed_dim=8 --random 5
expect 0 'resident:' check resident --random 5 --seed 9 --dry-run
cp "$dir/out" "$dir/drawn"
expect 0 'resident:' check resident --random 5 --seed 9 --dry-run
holds 'a seed is its cases' cmp "$dir/out" "$dir/drawn"
expect 0 ' 0 failed' check -q resident:ctx=9 cpu_kernels:ctx=9 --random 300ms
expect 64 '--order means nothing to these cases' check --order lse_merge
expect 64 '--dump means nothing to these cases' check link --dump "$dir/dump"
expect 64 '--faults means nothing to these cases' check link --faults 1
expect 64 "'18446744073709551616' is not a whole number" check --faults 18446744073709551616 smoke
expect 0 '"variant":"offload"' check -q --format json offload:ctx=9,steps=2
holds 'not repeated of itself' test "$(grep -c '"repeat":' "$dir/out")" = 0
expect 0 '"repeat":"same"' check -q --format json --faults 18446744073709551615 offload:ctx=9,steps=2

expect 0 'lse_merge:case=equal_scores' list cases lse_merge
expect 0 'both_empty_nan' list defects
expect 0 'load_over_attention' list defects
expect 64 "unknown form 'bas2'; did you mean 'base2'?" check lse_merge:form=bas2
expect 64 "unknown case 'gap'; did you mean 'gaps'?" check lse_merge:case=gap
expect 64 'no case' check -q lse_merge:case=one_state,states=5
expect 0 '1 passed, 0 failed' run -q "$gaps"

expect 0 'cpu_kernels:kernel=attend,layout=packed,isa=best,dtype=f32' list cases cpu_kernels
expect 0 'cpu_kernels:kernel=topk,isa=best,ctx=100' run --dry-run cpu_kernels:kernel=topk,ctx=100
expect 64 "unknown kernel 'atend'; did you mean 'attend'?" run cpu_kernels:kernel=atend
expect 0 '1 passed, 0 failed' check -q "$merge"
expect 64 'leave SUITE and CASE out' check smoke --replay x
expect 64 'give the file another name' check --replay 'a,b.safetensors'
expect 64 'give the file another name' check lse_merge --replay 'a b.safetensors'
expect 64 '--replay judges a file, --exec a command' check lse_merge --replay x --exec y
expect 64 '--mutants our own checks: one of them' check --mutants --replay x
expect 64 "unknown by 'avx3'; did you mean 'avx2'?" check -q lse_merge:case=gaps,by=avx3
expect 0 '1 passed, 0 failed' check -q lse_merge:case=gaps,states=3 --isa c
expect 0 'lse_merge:case=gaps,by=c,order=tree' check --dry-run lse_merge:case=gaps,by=c,order=tree
expect 0 "$(cat "$dir/out")" check --dry-run "$(cat "$dir/out")"
expect 10 'got nan, want -inf' check -q lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32 -o "$dir/merge"
holds 'the failure is in a file' test -s "$dir/merge/merge-both_empty_nan.safetensors"
holds 'the verdict is in junit.xml' grep -q '<failure' "$dir/merge/junit.xml"
expect 10 '0 passed, 1 failed' check lse_merge --replay "$dir/merge/merge-both_empty_nan.safetensors"
head -c 100 "$dir/merge/merge-both_empty_nan.safetensors" > "$dir/cut.safetensors"
expect 20 'cut.safetensors' check lse_merge --replay "$dir/cut.safetensors"
expect 64 'No such file' check lse_merge --replay "$dir/nonesuch.safetensors"
expect 40 'cannot run' check -q lse_merge:case=gaps --exec no_such_command
expect 40 '2 failed' check lse_merge:case=gaps lse_merge:case=one_state --exec no_such_command
holds 'each case says why' test "$(grep -c 'without a row' "$dir/out")" -eq 0
expect 40 "habench check 'lse_merge:case=gaps,by=exec' --exec 'no_such_command'" \
    check lse_merge:case=gaps --exec no_such_command -o "$dir/no_such"
holds 'junit.xml says it, too' grep -q ">habench check 'lse_merge:case=gaps,by=exec' --exec 'no_such_command'<" "$dir/no_such/junit.xml"
# however long it is, another command is not that of before
long=$(printf '%2000s' '')
expect 40 'cannot run' check -q lse_merge:case=gaps --exec "no_such_command$long" -o "$dir/long"
expect 40 'cannot run' check -q lse_merge:case=gaps --exec "no_such_command$long" -o "$dir/long" --resume
expect 64 'cannot go on there: options' check -q lse_merge:case=gaps --exec "no_such_command$long#" -o "$dir/long" --resume
expect 77 'unchecked: 1 x a device of the kind null computes nothing' check lse_merge:case=gaps --device null
expect 20 '--max-time is over' check -q lse_merge --max-time 1s
expect 64 'No such file' check -q lse_merge --device ./nonesuch.so

expect 0 'link:layout=scattered,piece=4K,method=kernel' list cases link
expect 0 'link:layout=scattered,piece=256,method=stores_4' list cases link -f stores_4,piece=256
holds 'both layouts, one a line' test "$(lines "$dir/out")" -eq 2
expect 0 "$(tail -1 "$dir/out")" run --dry-run "$(tail -1 "$dir/out")"
expect 64 "unknown method 'kernal'; did you mean 'kernel'?" run link:method=kernal
expect 64 "-f: unknown key 'peice'; did you mean 'piece'?" run link -f peice=4K
expect 64 'none of the cases fits' check link -f method=kernel,method=pinned
expect 64 '--threads means nothing to these cases' run link --threads 3
expect 64 "unknown device 'hots'; did you mean 'host'?" check link --device hots
expect 64 'quantum' check link --device quantum
expect 64 "--seed: 'x' is not a whole number" check link --seed x
[ "$scope" != all ] || expect 0 '18 passed, 0 failed, 0 skipped' check -q link -f piece=64K,method!=stores_2,method!=stores_4,method!=stores_all,method!=gather_2,method!=gather_4,method!=gather_all
expect 64 'the folder is not empty; give another name' run link:piece=64K -o "$batch"
[ "$scope" != all ] || expect 20 '--max-time is over' run -q link --max-time 1s -f method=pinned
expect 77 'unchecked' check -q link:piece=64K,method=pinned --device null
expect 77 'unchecked: 1 x the device does nothing' check -q device:op=copy --device null
expect 77 'the device does not offer meters' check -q device:op=meters
expect 0 '2 passed, 0 failed' check -q device:op=copy,bytes=65536 device:op=blend -o "$dir/ops"
holds 'two rows in device.csv' test "$(lines "$dir/ops/device.csv")" -eq 3
expect 64 "unknown op 'copi'; did you mean 'copy'?" check device:op=copi
expect 0 'stream_sync' list operations

for words in 'list variants' --help --version 'run --help' --print-man; do
    # shellcheck disable=SC2086 # words
    "$program" $words > /dev/full 2> "$dir/err"
    code=$?
    holds "a full disk is noticed: $words" test "$code" -eq 40
    # shellcheck disable=SC2086 # words
    "$program" $words >&- 2> "$dir/err"
    code=$?
    holds "a stdout that is closed is noticed: $words" test "$code" -eq 40
done
# files do not stand where stdout and stderr were
"$program" check "$small" "$small,seed=2" --device "$(dirname "$program")/t/wrong_scale.so" -o "$dir/closed" <&- >&- 2>&-
holds 'no message is in a file' sh -c "! grep -l '^fail: ' '$dir/closed'/*"
holds 'there are rows' test "$(lines "$dir/closed/cases.csv")" -eq 3
# nor does it matter to the folder who reads
"$program" check "$small" "$gaps" --format json -o "$dir/read" 2> "$dir/err" | head -1 > "$dir/out"
holds 'one line is read' grep -q '"row":"case"' "$dir/out"
holds 'the folder is complete' grep -q 'tests="2" failures="0" errors="0"' "$dir/read/junit.xml"

# a full disk, as a limit of the size of files: the rows so far stay whole, and the way on is named
cases=$(seq 1 60 | sed "s/.*/$small,seed=&/")
# shellcheck disable=SC2086 # cases without blanks
(ulimit -f 32 && exec "$program" check -q $cases -o "$dir/full" > /dev/null 2> "$dir/err" < /dev/null)
code=$?
# shellcheck disable=SC2086
(ulimit -f 4 && exec "$program" check -q $cases -o "$dir/fuller" 2>&1 > /dev/null < /dev/null) > "$dir/out"
holds 'the cause is named' grep -q 'env.json: cannot write: File too large' "$dir/out"
rows=$(($(lines "$dir/full/cases.csv") - 1))
holds 'a full disk gives 40' test "$code" -eq 40
holds 'it says how to go on' grep -q 'go on with --resume' "$dir/err"
holds 'there are some rows' test "$rows" -gt 2
# shellcheck disable=SC2086
expect 0 '60 passed, 0 failed, 0 skipped' check -q $cases -o "$dir/full" --resume
holds 'each case has a row' test "$(cut -d, -f3-22 "$dir/full/cases.csv" | grep -o 'resident:[^"]*' | sort -u | wc -l)" -eq 60
holds 'and none has two' test "$(lines "$dir/full/cases.csv")" -eq 61

# the environment of OpenMP: whatever it says, a check ends, and what is no number of threads is ignored and said
while read -r word set; do
    timeout 600 env "$set" "$program" check -q 'cpu:ctx=64,layers=1,steps=1' > "$dir/out" 2> "$dir/err" < /dev/null
    code=$?
    said=$(grep -c '^warning: OMP_NUM_THREADS is .*ignored' "$dir/err")
    case $word in
        ignored) holds "$set is ignored and said" test "$code,$said" = 0,1 ;;
        fine) holds "$set is taken" test "$code,$said" = 0,0 ;;
        *) holds "$set: a result, or one that says why not" test "$code,$said" = 0,0 -o "$code,$said" = 40,0 ;;
    esac
done << end
ignored OMP_NUM_THREADS=-1
ignored OMP_NUM_THREADS=0
ignored OMP_NUM_THREADS=abc
ignored OMP_NUM_THREADS=1e9
ignored OMP_NUM_THREADS=
ignored OMP_NUM_THREADS=,
ignored OMP_NUM_THREADS=2,x
ignored OMP_NUM_THREADS=2147483648
ignored OMP_NUM_THREADS=99999999999999999999
fine OMP_NUM_THREADS=2
fine OMP_NUM_THREADS= 4 , 2
fine OMP_WAIT_POLICY=abc
fine OMP_PROC_BIND=abc
fine OMP_PLACES=abc
fine OMP_DYNAMIC=abc
fine OMP_SCHEDULE=abc
fine OMP_STACKSIZE=abc
fine OMP_THREAD_LIMIT=abc
fine GOMP_CPU_AFFINITY=9999
fine GOMP_STACKSIZE=abc
fine KMP_AFFINITY=abc
fine KMP_BLOCKTIME=-5
ends OMP_THREAD_LIMIT=0
ends OMP_MAX_ACTIVE_LEVELS=0
ends OMP_STACKSIZE=1
ends KMP_STACKSIZE=100G
ends KMP_DEVICE_THREAD_LIMIT=1
end

finish
