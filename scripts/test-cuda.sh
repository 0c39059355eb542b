#!/bin/sh
# test-cuda.sh PROGRAM: the program on the emulated CUDA device, and on one that fails in the middle of a case: that
# case ends with an error and a row, and the next ones, on a fresh device in a fresh process, pass.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1
cases='streaming:ctx=64,layers=1,steps=1 resident:ctx=64,layers=1,steps=1 hgca:ctx=200,layers=1,steps=1 offload:ctx=64,layers=1,steps=1 gpu_only:ctx=200,layers=1,steps=1,budget=0.2'
cases="$cases hybrid_fixed:ctx=200,layers=1,steps=1,sink=8,recent=16,budget=0.2 quest:ctx=200,layers=1,steps=1,budget=64"
cases="$cases fluxion:ctx=300,layers=1,steps=1,predict=fixed,sink=8,recent=16,budget=0.2,fetch=move fluxion:ctx=500,steps=1,dataset=walk,heads=8/2,layers=4,fit=walk"
# predictions take a cuBLAS: HABENCH_CUBLAS has to name one for the emulation
cases="$cases topk:dataset=walk,ctx=100,layers=2,heads=4/2,steps=2,k=20,query=ahead"
cases="$cases infinigen:dataset=walk,ctx=100,layers=2,heads=4/2,steps=2"
cases="$cases lru_blocks:ctx=200,layers=2,heads=4/2,steps=3,block=8,recent=16,budget=0.2"
cases="$cases lru_blocks:ctx=200,layers=1,steps=3,block=8,recent=16,budget=0.2,capacity=1,policy=lfu,lookup=device,fetch=move"
cases="$cases clo:dataset=walk,ctx=100,layers=2,heads=4/2,steps=2,recent=16,budget=0.2,transfer=kernel"
walk='dataset=walk,layers=1,heads=4/2'
cases="$cases hcattention:$walk,ctx=100,steps=3,c=16,fresh=1"
cases="$cases hcattention:$walk,ctx=70,steps=1,c=512,pack=1,table=f16,weights=f16,values=device"
cases="$cases pqcache:$walk,ctx=100,steps=2,c=16 pqcache:$walk,ctx=100,steps=2,c=512,parts=4,lookup=cpu,fetch=move,budget=0.3"
for of in resident streaming duo; do cases="$cases $of:ctx=70,layers=2,steps=5,graph=1"; done
cases="$cases scout:dataset=walk,ctx=100,layers=2,heads=4/2,steps=4,block=8,budget=32,interval=2 copy_only:ctx=64,layers=1,steps=1"
count=$(echo "$cases" | wc -w)
right=$((count - 1)) # the last one is an arm, whose output is not attention: unchecked

# expect CODE TEXT [VAR=VALUE]...: the exit code of a check of the cases, and a text in what it prints
expect()
{
    code=$1 text=$2
    shift 2
    rm -rf "$dir/results" "$dir/first"
    # shellcheck disable=SC2086 # cases without blanks
    env HA_EMULATED_FIRST="$dir/first" "$@" "$program" check $cases --device cuda_emulated -o "$dir/results" > "$dir/err" 2>&1 < /dev/null
    got=$?
    if [ "$got" -eq "$code" ] && grep -qF -e "$text" "$dir/err" && [ "$(wc -l < "$dir/results/cases.csv")" -eq $((count + 1)) ]; then pass
    else fail "$*: exit code $got, wanted $code; wanted the text '$text' and $count rows"; fi
}

expect 0 "$right passed, 0 failed, 1 skipped" A=
expect 77 "waived: $count x no NVIDIA driver" HA_EMULATED_DEVICES=none
expect 77 'driver here is of CUDA 12.4' HA_EMULATED_DRIVER=12040
# lost in a kernel: of the opening, of one case, of another; the next case has a process without that fault
for nth in 1 5 9; do
    expect 40 "$((right - 1)) passed, 1 failed, 1 skipped" "HA_EMULATED_LOSE=$nth"
    holds 'the row says why' grep -q 'error 719 (cudaErrorLaunchFailure)' "$dir/results/cases.csv"
done
expect 40 "$((right - 1)) passed, 1 failed, 1 skipped" HA_EMULATED_FAIL=cudaMemcpyAsync:3:700:sticky
expect 40 "$((right - 1)) passed, 1 failed, 1 skipped" HA_EMULATED_FAIL=cudaMalloc:4:2:once
expect 40 'free; use a smaller case' HA_EMULATED_MEMORY=20000
expect 40 'HA_EMULATION_ORDER=garbage: neither forward, backward nor a number' HA_EMULATION_ORDER=garbage
expect 40 'HA_EMULATED_MEMOPS=no: neither 0 nor 1' HA_EMULATED_MEMOPS=no
expect 40 'HA_EMULATED_MEMORIES=1: the emulation reads no variable of that name' HA_EMULATED_MEMORIES=1
expect 0 "$right passed, 0 failed, 1 skipped" HA_EMULATION_ORDER=backward
expect 0 "$right passed, 0 failed, 1 skipped" HA_EMULATED_MEMOPS=0
expect 0 "$right passed, 0 failed, 1 skipped" HABENCH_HUGE_PAGES=1

# a graph that keeps the arguments of an earlier step is seen by what that leaves unwritten
env HA_EMULATED_UPDATES=0 "$program" check -q resident:ctx=70,layers=2,steps=5 resident:ctx=70,layers=2,steps=5,graph=1 \
    --device cuda_emulated > "$dir/err" 2>&1 < /dev/null
holds 'an update of a graph that does nothing is seen' grep -qF '1 passed, 1 failed, 0 skipped' "$dir/err"
holds 'an update of a graph that does nothing is named' grep -qF 'step 2' "$dir/err"

# by CPU stores into device memory, through a stand-in of GDRCopy; where it keeps them to itself, that is seen
stores='clo:dataset=walk,ctx=100,layers=2,heads=4/2,steps=4,recent=16,budget=0.2,transfer=stores'
mkdir "$dir/gdr"
ln -s "$(cd "$(dirname "$program")" && pwd)/t/fake_gdr.so" "$dir/gdr/libgdrapi.so.2"
for mapped in here lost; do
    env LD_LIBRARY_PATH="$dir/gdr" HA_EMULATED_GDR=$mapped "$program" check -q "$stores,sync=device" "$stores,sync=cpu" \
        --device cuda_emulated > "$dir/err" 2>&1 < /dev/null
    test $mapped = here && want='2 passed, 0 failed, 0 skipped' || want='0 passed, 2 failed, 0 skipped'
    holds "stores that are $mapped: $want" grep -qF "$want" "$dir/err"
done

# a suite that makes processes of its own, behind one that has used the device in this one
"$program" check -q device:op=attend_index,cases=one lse_merge:case=equal_scores --device cuda_emulated > "$dir/err" 2>&1 < /dev/null
holds 'a suite that forks has a process of its own' grep -q '^[0-9]* passed, 0 failed' "$dir/err"

# what the driver says reaches the checks: of a device without a fault, and of one at half of its link
for kind in good bad; do
    env HA_FAKE_NVML=$kind HABENCH_NVML="$(dirname "$program")/t/fake_nvml.so" "$program" doctor --device cuda_emulated > "$dir/out" 2> "$dir/err" < /dev/null
    got=$?
    if [ $kind = bad ]; then
        holds 'doctor: a narrow link is unfit' test $got -eq 40
        holds 'doctor: it is read while copies run' grep -q '^unfit    link  .*generation 4, 8 lanes while copies ran; device and slot can do 5, 16$' "$dir/out"
        holds 'doctor: ECC is off' grep -q '^warning  ECC   *off$' "$dir/out"
    else
        for check in 'device' 'device memory' 'device load' 'device processes' 'device throttling' 'device clock' 'power limit' 'link' 'ECC' \
            'ECC errors' 'persistence' 'MIG'; do
            holds "doctor: $check is fit" grep -q "^fit      $check  " "$dir/out"
        done
    fi
done
env HA_EMULATED_DEVICES=none "$program" doctor --device cuda_emulated > "$dir/out" 2> "$dir/err" < /dev/null
holds 'doctor: no device is unfit' test $? -eq 40
holds 'doctor: and says why' grep -q '^unfit    device  .*no NVIDIA driver' "$dir/out"

# what stands in for CUPTI records what runs: each operation enqueues what it says, and no record is somebody else's
cat > "$dir/spans.suite" << end
[default]
time = 10ms
ctx = 130
steps = 3
layers = 2
heads = 4/2
[decode]
variant = offload hgca streaming h2o quest bmm
budget = 32
block = 8
blk_size = 8
blk_num = 4
window = 40
[split]
variant = hybrid_fixed gpu_only tova duo
sink = 8
recent = 32
q_len = 3
budget = 0.3
[net]
variant = fluxion
dataset = walk
fit = walk
heads = 8/2
layers = 4
ctx = 460
budget = 0.05
[ahead]
variant = infinigen
dataset = walk
[labels]
variant = clo lru_blocks
dataset = walk
recent = 12
budget = 0.3
transfer = pieces
lookup = device
[codes]
variant = hcattention pqcache
dataset = walk
c = 64
[layer]
variant = resident
load = layer
model = small
heads = 8/2
layers = 1
[graphs]
variant = resident streaming
graph = 1
end
fake="$(cd "$(dirname "$program")" && pwd)/t/fake_cupti.so"
for memops in 1 0; do
    env HA_EMULATED_MEMOPS=$memops HABENCH_TRACE=cupti HABENCH_CUPTI="$fake" HA_EMULATED_RECORDER="$fake" "$program" run -q "$dir/spans.suite" \
        --device cuda_emulated --format json > "$dir/out" 2> "$dir/err" < /dev/null
    holds 'spans by CUPTI: the cases pass' grep -q '^19 passed, 0 failed, 0 skipped' "$dir/err"
    holds 'spans by CUPTI: none is lost' test "$(grep -c '"spans_dropped":0,.*"source":"CUPTI"' "$dir/out")" -eq 19
done

finish
