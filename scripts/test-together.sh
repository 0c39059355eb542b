#!/bin/sh
# test-together.sh PROGRAM: ranks that measure at once, as launchers start them: by their variables alone, and by mpirun
# and habench_meet, which is compiled here, where there is an MPI. What MPI would show is waived where there is none.
# Nothing here asks how fast this machine is.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1
link='link:piece=64K,method=pinned,layout=contiguous'
words="$link resident:ctx=64,layers=1,steps=2 lse_merge:case=gaps,by=c"
job="test-together.$$"

# as_rank RANK RANKS FOLDER ARG...: one rank, as Open MPI starts it; its process in $!
as_rank()
{
    to=$dir/$3 rank=$1 ranks=$2
    shift 3
    mkdir -p "$to"
    env PMIX_NAMESPACE="$job" OMPI_COMM_WORLD_RANK="$rank" OMPI_COMM_WORLD_SIZE="$ranks" OMPI_COMM_WORLD_LOCAL_RANK="$rank" \
        OMPI_COMM_WORLD_LOCAL_SIZE="$ranks" "$program" run -q "$@" -o "$to/$rank" > "$to/$rank.out" 2>&1 < /dev/null &
}
# start RANKS FOLDER ARG...: that many; their processes in $pids
start()
{
    all=$1 folder=$2 pids=
    shift 2
    for i in $(seq 0 $((all - 1))); do
        as_rank "$i" "$all" "$folder" "$@"
        pids="$pids $!"
    done
}
# ended NAME CODE...: how each of $pids ended
ended()
{
    name=$1
    shift
    for pid in $pids; do
        wait "$pid"
        got=$?
        holds "$name: a rank ended with $got, not $1" test "$got" -eq "$1"
        shift
    done
}

# all_met TEXT FILE LINE: there are measured cases, and of all of them LINE is "together of kept", known: apart_us is
# there where several were at once, and else is not
all_met()
{
    python3 - "$2" > "$dir/met" << 'END'
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    if row["samples"]:
        known = "known" if bool(row["apart_us"]) == (float(row["together"] or 0) > 1) else "apart_us?"
        print(row["together"] or "-", row["together_of"] or "-", "kept" if row["kept"] else "-", known)
END
    holds "$1: $(sort -u "$dir/met" | head -3), not $3" test "$(sort -u "$dir/met")" = "$3"
}

unset OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID
# shellcheck disable=SC2086 # words
expect 64 'this rank is the only one here: start it by mpirun or srun' run $words --together node
expect 64 "unknown ranks 'nod'; did you mean 'node'?" run smoke --together nod
expect 64 "unknown option '--together'" check smoke --together node
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
expect 64 'this rank is the only one here' run smoke --together node
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2
expect 40 'start each by habench_meet' run smoke --together all --case-time 1s
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE

# ---- by their variables alone
# shellcheck disable=SC2086
start 3 node $words --together node
ended node 0 0 0
for r in 0 1 2; do
    for file in cases.csv link.csv; do
        all_met "node: $file of $r alone" "$to/$r/alone/$file" '- - - known'
        all_met "node: $file of $r at once" "$to/$r/together/$file" '3 3 kept known'
    done
    for record in alone together; do
        holds "node: topology of $r, $record" grep -q '"same_socket"' "$to/$r/$record/topology.json"
    done
done
holds 'node: kept is a figure' grep -q '"kept"' "$to/0/together/figures.csv"
holds 'node: what kept is of' python3 - "$to/0" << 'END'
import csv, sys
rate = [float(list(csv.DictReader(open(f"{sys.argv[1]}/{name}/link.csv")))[0]["GBps"]) for name in ("alone", "together")]
kept = float(list(csv.DictReader(open(f"{sys.argv[1]}/together/link.csv")))[0]["kept"])
sys.exit(abs(rate[1] / rate[0] / kept - 1) > 1e-9)
END

# once more, where all is there already
# shellcheck disable=SC2086
start 3 node $words --together node --resume
ended resume 0 0 0
all_met 'resume: what was there stays' "$to/1/together/link.csv" '3 3 kept known'

# a run that goes on has the plan that it began with, whatever it would take by itself
start 2 plan "$link" --together node --plan constants
ended 'with a plan' 0 0
was=${HABENCH_PLAN-unset}
export HABENCH_PLAN="$dir/nowhere.csv"
start 2 plan "$link" --together node --resume
ended 'with the same plan' 0 0
if [ "$was" = unset ]; then unset HABENCH_PLAN; else HABENCH_PLAN=$was; fi

# of several devices each takes one before any is opened: here one that is none, and says what it sees
cat > "$dir/ha_cuda.c" << 'END'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void tell(void)
{
    FILE *f = fopen(getenv("TELL"), "a");
    fprintf(f, "%s\n", getenv("CUDA_VISIBLE_DEVICES"));
    fclose(f);
}
END
"${CC:-cc}" -shared -fPIC "$dir/ha_cuda.c" -o "$dir/ha_cuda.so"
export TELL="$dir/told" CUDA_VISIBLE_DEVICES=3,5
start 2 devices link:piece=64K --together node --device "$dir/ha_cuda.so"
ended 'a device that is none' 40 40
holds 'each rank takes its device' test "$(sort -u "$TELL" | tr '\n' ' ')" = '3 5 '
unset TELL CUDA_VISIBLE_DEVICES

as_rank 0 2 other $link --together node
pids=$!
as_rank 1 2 other "$link" --seed 2 --together node
pids="$pids $!"
ended 'other cases' 64 64
holds 'other cases: said' grep -q 'rank 1 runs other cases than rank 0' "$to/0.out"

start 3 pairs "$link" --together pairs
ended pairs 0 0 0
for r in 0 1 2; do
    holds "pairs: topology of $r" test -s "$to/$r/alone/topology.json"
    holds "pairs: no other topology of $r" test -z "$(find "$to/$r/pairs" -name topology.json)"
    for with in 0 1 2; do
        [ $r = $with ] || all_met "pairs: $r with $with" "$to/$r/pairs/$with/link.csv" '2 2 kept known'
    done
done

# two tasks of an array on one node, of two ranks each and other cases: those of another task are none to meet
pids=
for rank in 0.0 1.1 1.0 0.1; do
    task=${rank%.*} i=${rank#*.}
    env SLURM_ARRAY_JOB_ID=$$ SLURM_JOB_ID="$$$task" SLURM_STEP_ID=0 SLURM_ARRAY_TASK_ID=$((5 * task)) SLURM_ARRAY_TASK_COUNT=2 \
        SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=5 SLURM_PROCID="$i" SLURM_LOCALID="$i" SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 \
        "$program" run -q "$link" --seed "$((task + 1))" --together node -o "$dir/task$rank" > "$dir/task$rank.out" 2>&1 < /dev/null &
    pids="$pids $!"
    sleep 0.5
done
ended 'tasks of an array' 0 0 0 0
for task in 0 1; do
    for i in 0 1; do
        all_met "array: task $task, rank $i" "$dir/task$task.$i/together/link.csv" '2 2 kept known'
    done
done

# as ranks of a fleet
for i in 0 1; do
    env PMIX_NAMESPACE="$job" OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$i OMPI_COMM_WORLD_LOCAL_SIZE=2 \
        "$program" run -q "$link" --together node --fleet "$dir/fleet" --scratch "$dir" > "$dir/fleet.$i" 2>&1 < /dev/null &
    pids=$([ $i = 0 ] || echo "$pids ")$!
done
ended fleet 0 0
for folder in "$dir"/fleet/together/*.0 "$dir"/fleet/together/*.1; do
    all_met 'fleet: its record' "$folder/link.csv" '2 2 kept known'
    holds 'fleet: that of it alone' test -s "$dir/fleet/alone/${folder##*/}/link.csv"
    holds 'fleet: its rank has ended' grep -q '"exit": *0' "$dir/fleet/${folder##*/}.rank.json"
done
holds 'fleet: nothing besides' test "$(find "$dir/fleet" -mindepth 1 -maxdepth 1 | wc -l)" -eq 4
env PMIX_NAMESPACE="$job" OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
    "$program" run -q "$link" --together node --fleet "$dir/fleet" --scratch "$dir" > "$dir/out" 2>&1 < /dev/null
holds 'fleet: what is complete is not measured again' test $? -eq 0
holds 'fleet: that is said' grep -q 'nothing is measured again' "$dir/out"
"$program" compare --fleet "$dir/fleet/together" --against "$dir/fleet/alone" > "$dir/out" 2>&1 < /dev/null
holds 'fleet: what each keeps' grep -q '2 machines in both' "$dir/out"

# and of pairs, each of which is a record within that of its rank
for i in 0 1; do
    env PMIX_NAMESPACE="$job" OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$i OMPI_COMM_WORLD_LOCAL_SIZE=2 \
        "$program" run -q "$link" --together pairs --fleet "$dir/pairs.fleet" --scratch "$dir" > "$dir/fleet.$i" 2>&1 < /dev/null &
    pids=$([ $i = 0 ] || echo "$pids ")$!
done
ended 'fleet of pairs' 0 0
for i in 0 1; do
    all_met "fleet of pairs: rank $i" "$(echo "$dir"/pairs.fleet/pairs/*.$i)/$((1 - i))/link.csv" '2 2 kept known'
    holds "fleet of pairs: rank $i alone" test -s "$(echo "$dir"/pairs.fleet/alone/*.$i)/link.csv"
done

# one is killed when all have begun
# shellcheck disable=SC2086
start 3 killed $words --together node
for _ in $(seq 600); do
    [ -f "$to/2/alone/env.json" ] && break
    sleep 0.1
done
kill -9 "${pids##* }"
ended killed 0 0 137
all_met 'killed: the others go on' "$to/0/together/link.csv" '2 3 kept known'
holds 'nothing is left' test -z "$(find /dev/shm -maxdepth 1 -name "habench.*.$job")"

# ---- by mpirun
if ! mpirun --version 2> /dev/null | grep -q 'Open MPI'; then
    echo 'waived: mpirun, as there is no Open MPI here'
    finish
    exit
fi
as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root
mpi()
{
    # shellcheck disable=SC2086
    timeout 900 mpirun $as_root --oversubscribe -n 4 "$@" > "$dir/out" 2> "$dir/err" < /dev/null
}
# shellcheck disable=SC2016 # of that shell
rank='exec "$1" run -q "$4" -o "$2/$OMPI_COMM_WORLD_RANK" --together "$3"'
mkdir "$dir/mpi" "$dir/all" "$dir/lost"
mpi sh -c "$rank" sh "$program" "$dir/mpi" node "$link"
holds 'mpirun: node' test $? -eq 0
for r in 0 1 2 3; do all_met "mpirun: node, rank $r" "$dir/mpi/$r/together/link.csv" '4 4 kept known'; done

if ! mpicc=$(scripts/find-mpi.sh 2> /dev/null); then
    echo 'waived: habench_meet, as there is no mpicc here'
    finish
    exit
fi
"$mpicc" -std=c17 -D_DEFAULT_SOURCE -D_XOPEN_SOURCE=700 -O2 -I. harness/fleet/meet_mpi.c harness/base/clock.c \
    -o "$dir/habench_meet"
export HABENCH_MEET_CLOCKS=measure
mpi -x HABENCH_MEET_CLOCKS "$dir/habench_meet" sh -c "$rank" sh "$program" "$dir/all" all "$link"
holds 'habench_meet: all' test $? -eq 0
for r in 0 1 2 3; do all_met "habench_meet: all, rank $r" "$dir/all/$r/together/link.csv" '4 4 kept known'; done
# one whose program ends at once
# shellcheck disable=SC2016
mpi "$dir/habench_meet" sh -c '[ "$OMPI_COMM_WORLD_RANK" != 3 ] || exit 9; '"$rank --case-time 20s" sh "$program" \
    "$dir/lost" all "$link"
holds 'habench_meet: ends as its program does' test $? -eq 9
all_met 'habench_meet: the others go on' "$dir/lost/0/together/link.csv" '3 4 kept known'

# the other MPI, which says otherwise which rank is which
if ! command -v mpirun.mpich > /dev/null || ! command -v mpicc.mpich > /dev/null; then
    echo 'waived: MPICH, which is not here by the names of Debian'
    finish
    exit
fi
mpicc.mpich -std=c17 -D_DEFAULT_SOURCE -D_XOPEN_SOURCE=700 -O2 -I. harness/fleet/meet_mpi.c harness/base/clock.c \
    -o "$dir/meet_mpich"
for how in node all; do
    mkdir "$dir/mpich_$how"
    with=
    [ $how = node ] || with=$dir/meet_mpich
    # shellcheck disable=SC2016,SC2086
    timeout 900 mpirun.mpich -n 3 $with sh -c 'exec "$1" run -q "$4" -o "$2/$PMI_RANK" --together "$3"' sh "$program" \
        "$dir/mpich_$how" $how "$link" > "$dir/out" 2> "$dir/err" < /dev/null
    holds "MPICH: $how" test $? -eq 0
    for r in 0 1 2; do all_met "MPICH: $how, rank $r" "$dir/mpich_$how/$r/together/link.csv" '3 3 kept known'; done
done
finish
