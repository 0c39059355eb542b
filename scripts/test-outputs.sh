#!/bin/sh
# test-outputs.sh PROGRAM: the column `outputs`. Every variant, the suites of devices, merges and kernels: each small case has
# the same bits in another process, by other threads, beside delays, checked as measured; and compare says which have not.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1
fluxion='fluxion:dataset=walk,ctx=200,heads=4/2,head_dim=64,layers=2,steps=3,sink=8,recent=16,predict=oracle,schedule=length'
scout='scout:dataset=residual,ctx=100+90,steps=6,heads=4/2,head_dim=16,block=8,budget=32,recall=off'
some='hgca:ctx=90,layers=2,steps=3,blk_size=8,blk_num=4 cpu:ctx=90,layers=2,steps=3 cpu_kernels:ctx=700,heads=4/2'
merges='lse_merge:case=permuted,states=3 lse_merge:case=random,kind=natural,dtype=f16 lse_merge:case=attention,problem=split_and_merge,by=host lse_merge:case=device_splits lse_merge:case=either_order'

# digests FILE ARG...: of each row that has one its id, whosever threads it says, and its digest
digests()
{
    to=$dir/$1
    shift
    "$program" "$@" --format json 2> "$dir/err" > "$dir/out" || fail "habench $*: exit code $?"
    sed -n 's/^{"row":"case".*"case_id":"\([^"]*\)".*"outputs":"\([0-9a-f]\{16\}\)".*/\1 \2/p' "$dir/out" \
        | sed 's/,team=[a-z]*//' | sort -u > "$to"
    # no id twice: processes agree
    cut -d' ' -f1 "$to" | uniq -d > "$dir/twice"
    holds "habench $*: two digests of one case: $(head -n 3 "$dir/twice" | tr '\n' ' ')" test ! -s "$dir/twice"
}

same() { holds "$1 and $2 differ: $(diff "$dir/$1" "$dir/$2" | head -n 4)" cmp -s "$dir/$1" "$dir/$2"; }

# ---- every variant
# shellcheck disable=SC2086
{
    digests first check audit $fluxion $scout -f device=host --team openmp
    digests own check audit $fluxion $scout -f device=host --team own --processes 2
    digests late check audit $fluxion $scout -f device=host --faults=7
}
same first own
same first late
"$program" list variants | sed -n 's/^\([a-z][a-z0-9_]*\) .*/\1/p' | grep -v '_only$' > "$dir/variants"
echo gpu_only >> "$dir/variants"
while read -r variant; do
    holds "no case of $variant has a digest" grep -q "^$variant:" "$dir/first"
done < "$dir/variants"

# ---- checked as measured, and the other suites
# shellcheck disable=SC2086
{
    digests check check $some $merges device:op=attend device:op=merge
    digests again check $some $merges device:op=attend device:op=merge --processes 2
    digests few check $some
    digests run run $some
}
holds 'no digests of merges' grep -q '^lse_merge:' "$dir/check"
holds 'no digests of operations' grep -q '^device:' "$dir/check"
holds 'no digests of kernels' grep -q '^cpu_kernels:' "$dir/check"
same check again
same few run

# ---- compare
# shellcheck disable=SC2086
"$program" check -q $some -o "$dir/base" > "$dir/out" 2> "$dir/err" || fail 'no base'
flip()
{
    cp -r "$dir/base" "$dir/$1"
    sed "$2" "$dir/base/cases.csv" > "$dir/$1/cases.csv"
    "$program" compare "$dir/base" "$dir/$1" > "$dir/out" 2> "$dir/err"
    echo $? > "$dir/code"
}
digest=$(sed -n 's/^cpu:[^ ]* //p' "$dir/few")
flip same ''
holds "a copy is another: $(cat "$dir/code")" grep -qx 0 "$dir/code"
flip other "s/$digest/0000000000000000/"
holds "other bits end with $(cat "$dir/code")" grep -qx 10 "$dir/code"
holds 'other bits are not said' grep -q "^other bits .*cpu:.* the bits of its outputs are 0000000000000000 in 1 of 1 processes, and $digest in all of the base" \
    "$dir/out"
flip before 's/"outputs"/"something"/'
holds "a folder from before the column: $(cat "$dir/code")" grep -qx 0 "$dir/code"
finish
