#!/bin/sh
# test-mistakes.sh PROGRAM: the same mistake has the same exit code wherever it is made, and is said once; options may
# stand before the command.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
# a copy in a folder of its own: beside the program a plugin for GPUs may have been built
cp "$1" "$dir/habench" && ln -s "$PWD/suites" "$dir/suites" || exit 1
program=$dir/habench

# expect CODE TEXT ARG...: the exit code, and TEXT in one line of stderr, or of stdout where CODE is 0
expect()
{
    code=$1 text=$2
    shift 2
    "$program" "$@" > "$dir/out" 2> "$dir/err" < /dev/null
    got=$?
    said=$dir/err
    [ "$code" -eq 0 ] && said=$dir/out
    if [ "$got" -ne "$code" ]; then fail "habench $*: exit code $got, not $code"
    elif ! grep -qF -e "$text" "$said"; then fail "habench $*: does not say: $text"
    elif [ "$code" -ne 0 ] && [ "$(grep -cF -e "$text" "$said")" -ne 1 ]; then fail "habench $*: says it twice"
    else pass; fi
}

# 64: a name that names nothing
for words in resident smoke link cpu_kernels lse_merge 'smoke link'; do
    # shellcheck disable=SC2086 # words
    {
        expect 64 "'nosuch'; it is one of: " check $words --isa nosuch --dry-run
        expect 64 "-f: unknown key 'dtpe'; did you mean 'dtype'?" check $words -f dtpe=f16
        expect 64 "-f: unknown dtype 'f17'; did you mean 'f16'?" check $words -f dtype!=f17
        expect 64 "-f: unknown piece '5'; it is one of: 256 1K" check $words -f piece!=5
        expect 64 "-f: unknown suite 'lnk'; did you mean 'link'?" check $words -f suite!=lnk
        expect 64 "unknown variant or suite 'nosuch'; \`habench list suites\` and" check $words nosuch:ctx=1
        expect 64 "unknown variant or suite 'smok'; did you mean 'smoke'?" check $words smok
        expect 64 'no such suite file' check $words "$dir/no.suite"
        expect 64 "is not a whole number" check $words --seed 1e3
        expect 64 "is not a whole number" check $words --seed=-1
        expect 64 "is not a whole number" check $words --seed=18446744073709551616
        expect 64 "is not a whole number" check $words --processes 2.5
        expect 64 "is not a time" check $words --max-time 1.5h
    }
done
for words in resident link lse_merge:case=gaps 'lse_merge:case=gaps resident'; do
    # shellcheck disable=SC2086 # words
    {
        expect 64 'nosuch' check $words --device nosuch
        expect 64 './nosuch.so: cannot open: No such file' check $words --device ./nosuch.so
        expect 40 '`ninja cuda` builds it' check $words --device cuda
    }
done
expect 64 "unknown device 'hots'; did you mean 'host'?" probe --device hots
expect 40 '`ninja cuda` builds it' probe --device cuda
expect 64 "unknown device 'hots'; did you mean 'host'?" doctor --device hots
expect 40 '`ninja cuda` builds it' doctor --device cuda
expect 40 '`ninja cuda` builds it' check lse_merge:case=gaps,by=cuda
for variant in resident cpu hgca; do
    expect 64 "habench: --threads: '-3' is not a whole number" check "$variant" --threads=-3
    expect 64 "unknown dataset 'nosuch'" check "$variant:dataset=nosuch"
    expect 64 'trace nosuch: no such file' check "$variant:dataset=trace/nosuch"
    expect 64 "trace $dir/nosuch: there is no such file" check "$variant:dataset=trace/$dir/nosuch"
    expect 64 "flashinfer $dir/nosuch@1: there is no such file" check "$variant:dataset=flashinfer/$dir/nosuch@1"
    expect 64 'trace nosuch: no such file' check smoke "$variant:dataset=trace/nosuch"
done
expect 64 "threads: '1.5' is not" check cpu_kernels --threads=1.5
expect 64 "$dir/nosuch: No such file" check lse_merge --replay "$dir/nosuch"

# options that no case can have
expect 64 'block: 24 is none of 8 16 32 64 128' check hybrid_fixed:block=24
expect 64 'block: 24 is none of 8 16 32 64 128' check scout:block=24
expect 64 'block: 24 is none of 8 16 32 64 128' check lru_blocks:block=24
expect 64 'capacity: 0.5 is outside of [1, 1000000]' check lru_blocks:capacity=0.5
expect 64 'block: 7 is none of 8 16 32 64 128' check hybrid_fixed:block=7
expect 64 'blocks of 8 tokens: 16, 32, 64 or 128 where layout=packed' check hybrid_fixed:block=8,layout=packed
expect 64 "variant infinigen has no option 'block'; its own: alpha most columns group fetch predict" \
    check infinigen:block=7
expect 64 "variant resident has no option 'block'; its own: none" check resident:block=7
for tau in 0 -0.5 1.01 2; do expect 64 "tau: $tau is outside of [1e-06, 1]" check "hcattention:tau=$tau"; done
expect 64 "tau: 'nan' is not a finite number" check hcattention:tau=nan
expect 64 'budget: 0 is outside of [1e-06, 1]' check pqcache:budget=0
expect 64 'budget: 1.5 is outside of [1e-06, 1]' check pqcache:budget=1.5
for c in 0 1 3 100 131072; do
    expect 64 "c: $c is none of 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 65536" check "hcattention:c=$c"
    expect 64 "c: $c is none of 2 4 8 16 " check "pqcache:c=$c"
done
expect 64 'dims: 3 is none of 1 2 4 8 16 32 64 128' check hcattention:dims=3
expect 64 'parts: 256 is none of 1 2 4 8 16 32 64 128' check pqcache:parts=256
expect 64 "the CPU's to do: it takes values=host" check hcattention:renorm=1,values=device

# whole numbers of variants
for param in hgca:blk_size=32.5 hgca:blk_num=8.5 hgca:heads_per_task=1.5 streaming:sink=0.5 \
    streaming:window=9.5; do
    expect 64 'is not a whole number' check "$param"
done
expect 64 "unknown layout 'paked'; did you mean 'packed'?" check hgca:layout=paked
expect 64 "unknown layout '1'; it is one of: natural packed" check cpu:layout=1

# 20: files that are damaged, of every case, or of one beside others that are right
head -c 100000 datasets/traces/english.safetensors > "$dir/cut.safetensors"
echo 'no such format' > "$dir/text.safetensors"
for file in cut text; do
    expect 20 "$file.safetensors" check "resident:dataset=trace/$dir/$file.safetensors"
    expect 20 "$file.safetensors" check cpu "hgca:dataset=trace/$dir/$file.safetensors" -f hgca
    expect 20 '1 of 2 cases were not run' \
        check resident:ctx=64,layers=1 "cpu:dataset=trace/$dir/$file.safetensors" -o "$dir/$file"
    holds 'the other case runs' grep -qxF '1 passed, 0 failed, 1 skipped' "$dir/out"
    holds 'the file is named' grep -q "^not run: 1 x .*$file.safetensors" "$dir/out"
    holds 'it is in junit.xml' grep -q "<skipped message=\"not run: .*$file.safetensors" "$dir/$file/junit.xml"
    expect 20 "$file.safetensors" check lse_merge:replay="$dir/$file.safetensors" resident:ctx=64,layers=1
    expect 20 "$file.safetensors" check lse_merge --replay "$dir/$file.safetensors"
done

# fluxion: no net, a net of something else, a file that has none, no query to begin with
small=fluxion:dataset=walk,ctx=200,heads=2/1,head_dim=8,sink=4,recent=8
labels=$dir/labels.safetensors
expect 77 'everything was waived' check "$small"
holds 'which net there is' grep -q 'predict=net reads a net: fit=small with dataset=trace/english' "$dir/out"
expect 64 'no datasets/fits/nosuch.safetensors here or beside the program' check "$small,fit=nosuch"
expect 0 "$labels" fit "$small,layers=1,observed=8" -o "$labels"
expect 40 '1 of 1 could not be judged' check "$small,layers=1,fit=$labels"
holds 'how to come to a net' grep -q 'by which scripts/train_fluxion.py trains a net, and no net$' "$dir/out"
expect 40 '1 of 1 could not be judged' check fluxion:dataset=walk,layers=4,ctx=460,observed=0,fit=walk
holds 'a query is asked for' grep -q 'learnt from the last query of the context, and none is observed: obs' "$dir/out"
expect 64 "was made for layers '1', the case has '2'" check "$small,layers=2,fit=$labels"
expect 64 "was made for model 'walk'" check "fluxion:dataset=trace/english,ctx=1900,sink=4,recent=8,fit=$labels"
expect 64 "the case has 'sink=5,recent=8" check "fluxion:dataset=walk,sink=5,recent=8,fit=$labels"
expect 64 'tau: 2 is outside of [0.001, 1]' check fluxion:tau=2

# clo: numbers out of range, a budget that is too small, no inputs to predict from, a fit of something else, or with a NaN
small=clo:dataset=walk,ctx=100,layers=4,steps=1
expect 64 'eta: 2 is outside of [-1, 1]' check clo:eta=2
expect 64 'p: -1 is outside of [0, 16]' check clo:p=-1
expect 64 'budget: 1.5 is outside of [1e-06, 1]' check clo:budget=1.5
expect 64 'bits: 48 is none of 32 64 128 256' check clo:bits=48
expect 64 'stores: 9 is outside of [1, 8]' check clo:stores=9
expect 64 "unknown transfer 'memcpy'; it is one of: stores kernel gather pieces" check clo:transfer=memcpy
expect 40 '1 of 1 could not be judged' check "$small,device_budget_MB=0.01"
holds 'how much it takes' grep -q 'keys and values of the first layer stay on the device: 0.052 MB, of which device_b' "$dir/out"
expect 77 'everything was waived' check clo:dataset=iid,ctx=100,layers=2,steps=1
holds 'which data set there is' grep -q 'the dataset has no layer inputs to predict from: take dataset=walk' "$dir/out"
expect 77 'everything was waived' check "$small,hash=learned"
holds 'how to come to codes' grep -q 'hash=learned takes the matrices of a fit' "$dir/out"
expect 64 "was made for model 'walk'" check clo:dataset=trace/english,ctx=1900,fit=clo_walk
expect 64 "was made for variant 'fluxion', the case has 'clo'" check "$small,fit=walk"
expect 64 "the case has 'sink=5,recent=64'" check "$small,sink=5,fit=clo_walk"
cp datasets/fits/clo_walk.safetensors "$dir/nan.safetensors"
size=$(wc -c < "$dir/nan.safetensors")
printf '\000\000\300\177' | dd of="$dir/nan.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2> /dev/null
expect 20 'is NaN' check "$small,fit=$dir/nan.safetensors"

# options before the command, and their values
ids='resident:dataset=sinks,ctx=64,dtype=f16'
expect 0 "$ids" --dry-run run resident:ctx=64
expect 0 "$ids" -q --dry-run check resident:ctx=64
expect 0 "$ids" -f resident check --dry-run resident:ctx=64 cpu
expect 0 "$ids" -fresident check --dry-run resident:ctx=64 cpu
expect 0 "$ids" -qf resident check --dry-run resident:ctx=64 cpu
expect 0 "$ids" "-o$dir/f" check --dry-run resident:ctx=64
expect 0 "$ids" -o check check --dry-run resident:ctx=64
expect 0 'resident:device=./run,dataset=sinks,ctx=64,dtype=f16,seed=9' --device ./run --seed=9 run resident:ctx=64 --dry-run
expect 0 'seed=9' --max-time 5m --seed 9 -q run --dry-run resident
expect 0 'resident:' -f resident list cases smoke
for option in --filter=x --device=host --seed=1 --threads=1 --team=own --isa=c; do
    expect 64 "${option%%=*} means nothing to list devices" list devices "$option"
done
expect 0 '1 passed, 0 failed' -q check resident:ctx=64,layers=1,steps=1
expect 0 '1 passed, 0 failed' --device host -q check resident:ctx=64,layers=1,steps=1
expect 64 "unknown command 'rnu'; did you mean 'run'?" -q rnu smoke
expect 64 "unknown option '--thraeds'; did you mean '--threads'?" --thraeds=3 run smoke

finish
