#!/bin/sh
# test-cli.sh PROGRAM: the command line from outside: exit codes, messages, what goes where.
program=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
small='resident:ctx=64,layers=1,steps=1'

fail()
{
    failed=$((failed + 1))
    echo "FAILED: habench $*"
    sed 's/^/    stderr: /' "$dir/err" | head -5
}

# expect CODE TEXT ARG...: the exit code, and TEXT in what it prints
expect()
{
    code=$1 text=$2
    shift 2
    "$program" "$@" > "$dir/out" 2> "$dir/err" < /dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then fail "$@"; echo "    exit code $got, not $code"
    elif ! cat "$dir/out" "$dir/err" | grep -qF -e "$text"; then fail "$@"; echo "    does not say: $text"
    else passed=$((passed + 1)); fi
}

# holds TEXT CONDITION...: a condition on the latest command
holds()
{
    text=$1
    shift
    if "$@"; then passed=$((passed + 1)); else fail "... $text"; fi
}

expect 0 'Usage: habench' --help
expect 0 'habench COMMAND --help' --help
expect 0 'habench ' --version
expect 0 'Exit code: 0 everything right' run --help
expect 0 '--mutants' check --help
expect 0 'Usage: habench list' list --help
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

expect 64 "unknown suite 'smok'; did you mean 'smoke'?" run --dry-run smok
expect 64 'no such suite file' run --dry-run "$dir/no.suite"
expect 64 "unknown variant 'residnet'; did you mean 'resident'?" run --dry-run residnet:ctx=1
expect 64 "unknown key 'thread'; did you mean 'threads'?" run --dry-run resident:thread=1
expect 64 "unknown dtype 'fp16'; did you mean 'f16'?" run --dry-run resident:dtype=fp16
expect 64 "unknown dataset 'sink'; did you mean 'sinks'?" run --dry-run resident:dataset=sink
expect 64 "ctx: '99999999999999999999' is too large" run --dry-run resident:ctx=99999999999999999999
expect 64 'head_dim: 60 is not a multiple of 8' run --dry-run resident:head_dim=60
expect 64 "-f: unknown key 'dtyp'; did you mean 'dtype'?" run --dry-run smoke -f dtyp=f16
expect 64 'none of the' run --dry-run smoke -f nonesuch
expect 64 "--seed: seed: 'x' is not a whole number" run --dry-run smoke --seed x
expect 64 "--threads: threads: '-1' is not a whole number" run --dry-run smoke --threads=-1
expect 64 "unknown device 'hots'; did you mean 'host'?" check "$small" --device hots
expect 40 "quantum" check "$small" --device quantum
expect 64 "unknown instruction set 'avx22'; did you mean 'avx2'?" check "$small" --isa avx22
expect 64 "unknown instruction set 'avx22'; did you mean 'avx2'?" check "$small" --without avx512,avx22
expect 64 'c needs no extension and cannot be masked' list kernels --without c
expect 64 'name them all at once' check "$small" --without avx2 --without neon
expect 0 'c            available, used by default' list kernels --without avx2,neon
expect 77 'instruction set avx2:' check "$small" --isa avx2 --without avx2
expect 77 'instruction set amx:' check "$small" --isa amx --without avx2
expect 0 '; c kernels; habench' check "$small" -q --without avx2,neon

printf '[a]\nvariant = resident\nthread = 1\n' > "$dir/typo.suite"
expect 64 "typo.suite:3: unknown key 'thread'; did you mean 'threads'?" run "$dir/typo.suite"
printf '[a]\nvariant = resident\nctx = 64\nhead_dim 64\n' > "$dir/syntax.suite"
expect 64 'syntax.suite:4: neither [section] nor key = value' check "$dir/syntax.suite"
printf '[a]\nvariant = resident\nctx = 64 128\nsteps = 1\n' > "$dir/two.suite"

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
expect 64 'list what?' list
expect 64 'of which SUITE or CASE?' list cases
expect 64 'takes no further word' list keys smoke

# every suite of the tree can be read
for suite in $("$program" list suites | awk '{print $1}' | grep -v '^cpu_kernels$'); do
    expect 0 ':dataset=' list cases "$suite"
done

expect 0 '1 passed, 0 failed' check "$small"
expect 0 '1 passed, 0 failed' check "$small" --isa c -q
expect 10 '0 passed, 1 failed' check "$small" --device "$(dirname "$program")/t/wrong_scale.so"
holds 'the case is named on stderr' grep -q '^fail: resident:' "$dir/err"
HABENCH_TRACE=garbage
export HABENCH_TRACE
expect 40 'HABENCH_TRACE=garbage: neither cupti nor events' check "$small"
unset HABENCH_TRACE
expect 0 'unchecked' check "$small" --device null
expect 0 '2 passed, 0 failed' check "$dir/two.suite" -o "$dir/new"
holds 'files are written' test -s "$dir/new/cases.csv"
expect 64 'the folder is not empty; give another name, or --resume' check "$dir/two.suite" -o "$dir/new"
expect 0 'passed, 0 failed' check "$dir/two.suite" -o "$dir/new" --resume
mkdir "$dir/empty"
expect 0 '2 passed, 0 failed' check "$dir/two.suite" -o "$dir/empty"
: > "$dir/file"
expect 64 'Not a directory' check "$small" -o "$dir/file"
expect 20 'nonesuch' check resident:dataset=trace/nonesuch,ctx=64

expect 0 'lse_merge:case=equal_scores,by=c' list cases lse_merge
expect 0 'both_empty_nan' list defects
expect 64 "unknown form 'bas2'; did you mean 'base2'?" check lse_merge:form=bas2
expect 64 "unknown case 'gap'; did you mean 'gaps'?" check lse_merge:case=gap
expect 64 'no case' check -q lse_merge:case=one_state,states=5
expect 0 '1 passed, 0 failed' run -q lse_merge:case=gaps,by=c,states=3
expect 0 '2 passed, 0 failed' check -q lse_merge:case=gaps,by=c,states=3 "$small"

expect 0 'cpu_kernels:kernel=attend,layout=packed,isa=best,dtype=f32' list cases cpu_kernels
expect 0 'cpu_kernels:kernel=topk,isa=best,ctx=100' run --dry-run cpu_kernels:kernel=topk,ctx=100
expect 64 "unknown kernel 'atend'; did you mean 'attend'?" run cpu_kernels:kernel=atend
expect 64 'has figures of its own' run cpu_kernels smoke
expect 64 'takes no --resume' run cpu_kernels --resume -o x
expect 0 '1 passed, 0 failed' check -q cpu_kernels:kernel=merge,heads=4/2,head_dim=8
expect 64 '--replay judges a file, --exec a command' check lse_merge --replay x --exec y
expect 64 "unknown by 'avx3'; did you mean 'avx2'?" check -q lse_merge:by=avx3
expect 0 '1 passed, 0 failed' check -q lse_merge:case=gaps,states=3 --isa c
expect 0 'lse_merge:case=gaps,by=host,seed=7' check --dry-run lse_merge:case=gaps --seed 7
expect 10 'got nan, want -inf' check -q lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32 -o "$dir/merge"
holds 'the failure is in a file' test -s "$dir/merge/merge-both_empty_nan.safetensors"
holds 'the verdict is in junit.xml' grep -q '<failure' "$dir/merge/junit.xml"
expect 10 '0 passed, 1 failed' check lse_merge --replay "$dir/merge/merge-both_empty_nan.safetensors"
head -c 100 "$dir/merge/merge-both_empty_nan.safetensors" > "$dir/cut.safetensors"
expect 40 'cut.safetensors' check lse_merge --replay "$dir/cut.safetensors"
expect 40 'cannot run' check -q lse_merge --exec no_such_command
expect 40 '0 passed, 1 failed, 64 skipped' check -q lse_merge --exec no_such_command
expect 20 '--max-time is over' check -q lse_merge --max-time 1s
expect 40 'No such file' check -q lse_merge --device ./nonesuch.so

expect 0 'link:method=kernel,piece=4K,layout=scattered' list cases link
expect 0 'link:method=stores_4,piece=256,layout=scattered' list cases link -f stores_4,piece=256
holds 'both layouts, one a line' test "$(wc -l < "$dir/out")" -eq 2
expect 0 "$(tail -1 "$dir/out")" run --dry-run "$(tail -1 "$dir/out")"
expect 64 "unknown method 'kernal'; did you mean 'kernel'?" run link:method=kernal
expect 64 "-f: unknown key 'peice'; did you mean 'piece'?" run link -f peice=4K
expect 64 'none of the figures fits' check link -f method=kernel,method=pinned
expect 64 'link has figures of its own' run link smoke
expect 64 'link takes no --resume' run link --threads 3
expect 64 "unknown device 'hots'; did you mean 'host'?" check link --device hots
expect 40 'quantum' check link --device quantum
expect 64 '--seed x: not a number' check link --seed x
expect 0 '18 passed, 0 failed, 0 skipped' check -q link -f piece=64K,method!=stores_2,method!=stores_4,method!=stores_all,method!=gather_2,method!=gather_4,method!=gather_all
expect 0 'There is no link here' run -q link:piece=64K,method=pinned -o "$dir/link"
holds 'the first column is the schema' grep -q '^"schema_version","method"' "$dir/link/link.csv"
holds 'a row for each layout' test "$(wc -l < "$dir/link/link.csv")" -eq 3
holds 'the verdicts are in junit.xml' grep -q 'link:method=pinned,piece=64K,layout=scattered' "$dir/link/junit.xml"
holds 'the ceilings are in env.json' grep -q '"link, host to device"' "$dir/link/env.json"
expect 64 'the folder is not empty' run link:piece=64K -o "$dir/link"
expect 20 '--max-time is over' run -q link --max-time 1s -f method=pinned
expect 0 'unchecked' check -q link:piece=64K,method=pinned --device null

"$program" list variants > /dev/full 2> "$dir/err"
code=$?
holds 'a full disk is noticed' test "$code" -eq 40

echo "$passed passed, $failed failed"
test "$failed" -eq 0
