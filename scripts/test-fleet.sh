#!/bin/sh
# test-fleet.sh PROGRAM SCHEMA [all] [--install]: ranks of a fleet from outside: of no launcher, of Open MPI or MPICH where there
# is an mpirun, of Slurm where there are its daemons, which are started here, several nodes on the loopback, and ended. What is
# not there is not tried, which a line says; --install has apt-get fetch it (slurm-wlm, openmpi-bin). all: also what takes
# minutes: an array of 8 in which one rank is killed, one hangs until the job's time is over, one has a full disk and one node
# is drained; jobs that are requeued, on the same node and on another. SCHEMA: the program of harness/report/test_schema.c.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$(realpath "$1") schema=$(realpath "$2") rank_schema=$(realpath results/schema/rank.schema.json)
starters=$(realpath "$(dirname "$0")/fleet")
shift 2
all=false
for word in "$@"; do
    case $word in
        all) all=true ;;
        --install) apt-get install -y --no-install-recommends slurm-wlm openmpi-bin || exit 40 ;;
    esac
done
cd "$dir" || exit 1
export TMPDIR="$dir/scratch" HABENCH="$program"
mkdir scratch
quick=resident:ctx=64,layers=1,steps=1 row_of=ctx=64,
slow=resident:ctx=4096,steps=30000

# said FLEET/MACHINE MEMBER: of its rank.json, as JSON
said() { sed -n "s/^  \"$2\": \(.*[^,]\),\{0,1\}\$/\1/p" "$1.rank.json" 2> /dev/null; }
# is FLEET/MACHINE MEMBER VALUE
is()
{
    now=$(said "$1" "$2")
    holds "$1.rank.json: $2 is $now, not $3" test "$now" = "$3"
}
# after SECONDS COMMAND...: it succeeds within that time, however busy the machine is
after()
{
    tries=$(($1 * 4))
    shift
    until "$@" > /dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.25
    done
}
# a whole record, and nothing of it left where it was measured
whole()
{
    holds "$1 has a record" test -s "$1/junit.xml" -a -s "$1/cases.csv" -a -s "$1/env.json"
    is "$1" exit "${2:-0}"
    is "$1" signal null
    is "$1" where null
}
# no record, nor half of one, but what there is in a folder that the file names
kept()
{
    holds "$1 has no record" test ! -e "$1"
    holds "$1 has no half record" test ! -e "$(dirname "$1")/.$(basename "$1").part"
    where=$(said "$1" where | tr -d '"')
    holds "$1: what there is is in '$where'" test -s "$where/record/env.json"
}
fit() { holds "each rank.json of $1 is as its schema says" "$schema" test_schema "$rank_schema" "$1"/*.rank.json; }

# ranks FLEET [VARIABLE=VALUE]: the processes of habench that measure for it, without their workers
ranks()
{
    for each in /proc/[0-9]*; do
        [ "$(cat "$each/comm" 2> /dev/null)" = "$(basename "$program" | cut -c1-15)" ] || continue
        tr '\0' ' ' < "$each/cmdline" 2> /dev/null | grep -q -e "--fleet $1 " || continue
        [ -z "$2" ] || tr '\0' '\n' < "$each/environ" 2> /dev/null | grep -q -x -e "$2" || continue
        parent=$(sed -n 's/^PPid:[[:space:]]*//p' "$each/status" 2> /dev/null)
        [ "$(cat "/proc/$parent/comm" 2> /dev/null)" = "$(cat "$each/comm" 2> /dev/null)" ] || echo "${each#/proc/}"
    done
}
# has_row NAME: the first case is complete in the folder habench-NAME, a pattern, where a rank measures
# shellcheck disable=SC2086 # a pattern
has_row() { cat scratch/habench-$1/record/cases.csv 2> /dev/null | grep -q $row_of; }
# hangs FLEET [VARIABLE=VALUE]: the case that its rank is in stands still, and only SIGKILL ends it
hangs()
{
    rank=$(ranks "$@")
    [ -n "$rank" ] || return 1
    worker=$(cat "/proc/$rank/task/$rank/children")
    [ -n "$worker" ] || return 1
    # shellcheck disable=SC2086 # a word each
    kill -STOP $worker
}

# ---- no launcher -----------------------------------------------------------------------------------------------------

# What the shell that runs this is itself a rank of is nothing to the tests.
for name in $(env | sed -n -E 's/^((SLURM|OMPI|PMIX|PMI|MPI)_?[A-Z0-9_]*)=.*/\1/p'); do unset "$name"; done

# habench CODE WORD...: what it ends with
habench()
{
    code=$1
    shift
    timeout 900 "$program" "$@" > out 2> err < /dev/null
    got=$?
    if [ "$got" -eq "$code" ]; then pass; else fail "habench $*: exit code $got, not $code"; fi
}
says() { holds "it says: $1" grep -q -e "$1" out err; }

host=$(uname -n | tr -c 'A-Za-z0-9_.\n-' -)
habench 64 check $quick --fleet one -o two
says 'leave -o and --resume out'
habench 64 check $quick --scratch two
says 'scratch needs --fleet'
habench 64 nightly
says 'where to'
for value in '' ../x 1180591620717411303424; do
    SLURM_PROCID=$value habench 64 check -q $quick --fleet one
    says "^habench: SLURM_PROCID='$value': it is no whole number"
done
holds 'a rank that is refused leaves nothing' test ! -e one
habench 64 check -q no_such_suite --fleet one
is one/"$host" exit 64
habench 0 check -q $quick --fleet one
whole one/"$host"
is one/"$host" launcher '"none"'
is one/"$host" attempts 2
habench 64 check -q $quick --fleet one
says 'has its record already'
SLURM_PROCID=0 SLURM_JOB_ID=5 SLURMD_NODENAME=../../n habench 0 check -q $quick --fleet one
whole one/_.-..-n
fit one

# a night is a rank as well, and is whole if its time is over
habench 20 nightly -q --fleet night --max-time 1ms
is night/"$host" exit 20
holds 'a night is moved with its folders' test -s night/"$host"/night.json -a -d night/"$host"/check

# a case that hangs, a signal, and another attempt, which has the row that was complete
"$program" run -q $quick $slow --fleet hang > out 2> err < /dev/null &
begun=$!
holds 'a row is complete' after 120 has_row 'none-*'
holds 'its case hangs' after 20 hangs hang
kill -TERM $begun
wait $begun
holds 'SIGTERM gives 143' test $? -eq 143
is hang/"$host" signal 15
is hang/"$host" exit null
kept hang/"$host"
row=$(grep $row_of "$where/record/cases.csv")
habench 0 run -q $quick resident:ctx=65 --fleet hang
says 'attempt 2 goes on in'
whole hang/"$host"
is hang/"$host" attempts 2
holds 'the row that was complete was not measured again' grep -q -x -F -e "$row" hang/"$host"/cases.csv
holds 'no folder is left' test -z "$(ls scratch)"
fit hang

# a full disk where it measures: a limit of the size of files is one
(ulimit -f 8; exec timeout 900 "$program" check -q $quick $quick,seed=2 $quick,seed=3 --fleet full > out 2> err < /dev/null)
holds 'a full scratch folder gives 40' test $? -eq 40
says 'the rows so far are kept: make room'
says 'no whole record: what there is stays in'
is full/"$host" exit 40
kept full/"$host"
habench 0 check -q $quick $quick,seed=2 $quick,seed=3 --fleet full
whole full/"$host"

# a full disk where records are kept: a small file system of its own
if unshare -rm true 2> /dev/null; then
    mkdir small
    unshare -rm sh -c "mount -t tmpfs -o size=16k none small && timeout 900 '$program' check -q $quick --fleet small > out 2> err
        echo code \$? >> out; ls -A small >> out; cat small/*.rank.json >> out" < /dev/null
    says '^code 40'
    says "$host: small/.$host.part/.*: No space left on device; the record stays in $dir/scratch/habench-none-"
    says '^  "exit": 40,'
    holds 'nothing half is there' test "$(grep -c -e '^\.' -e "^$host\$" out)" -eq 0
    holds 'the record is whole where it was measured' test -s scratch/habench-none-"$host"-*/record/junit.xml
    rm -r scratch/habench-*
else
    echo 'not tried: a full fleet folder: no name space of its own for a small file system'
fi

# ---- an mpirun that begins one rank of two ----------------------------------------------------------------------------

cat > half << 'S'
#!/bin/sh
if [ "$1" = uname ]; then "$@"; exec "$@"; fi
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2
exec "$@"
S
chmod +x half
MPIRUN=./half "$starters/mpi.sh" half.fleet check -q $quick > out 2> err < /dev/null
holds 'a rank that never began is 20' test $? -eq 20
says "mpi.sh: $host.1: expected, and no rank has begun there"
whole half.fleet/"$host.0"
printf '# all of them\n%s # by its host\n\n' "$host" > half.fleet/expected
MPIRUN=./half "$starters/mpi.sh" half.fleet check -q $quick > out 2> err < /dev/null
holds 'a rank on the machine that is expected is 0' test $? -eq 0
MPIRUN=true "$starters/mpi.sh" none.fleet check -q $quick > out 2> err < /dev/null
holds 'no rank at all is 20' test $? -eq 20

# ---- MPI -------------------------------------------------------------------------------------------------------------

# as root, and in a container with fewer cores than ranks
mpi()
{
    case $(mpirun --version 2> /dev/null) in
        *'Open MPI'*) MPIRUN="mpirun --oversubscribe -n 4"; [ "$(id -u)" -ne 0 ] || MPIRUN="$MPIRUN --allow-run-as-root" ;;
        *HYDRA*) MPIRUN='mpirun -n 4' ;;
        *) return 1 ;;
    esac
    export MPIRUN
}

if mpi; then
    echo "tried: $(mpirun --version | sed -n 's/^mpirun (\(.*\))/\1/p; s/^ *Version: */MPICH /p')"
    "$starters/mpi.sh" m check -q $quick > out 2> err < /dev/null
    holds 'four ranks of MPI' test $? -eq 0
    for i in 0 1 2 3; do
        whole m/"$host.$i"
        is m/"$host.$i" rank $i
        is m/"$host.$i" ranks 4
    done
    holds 'who has to be there is written down' test "$(tr '\n' ' ' < m/expected)" = "$host.0 $host.1 $host.2 $host.3 "
    fit m

    # one is wrong, one is killed, one is told to end and one gets the signal of them all, in a case that hangs
    cat > some << 'S'
#!/bin/sh
# the words of the fleet are the last two
case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in
    0) exec "$PROGRAM" check -q "$QUICK" "$4" "$5" ;;
    *) exec "$PROGRAM" run -q "$QUICK" "$SLOW" "$4" "$5" ;;
esac
S
    chmod +x some
    PROGRAM=$program QUICK=$quick SLOW=$slow HABENCH=./some "$starters/mpi.sh" mk check -q $quick > out 2> err < /dev/null &
    begun=$!
    by=OMPI_COMM_WORLD_RANK
    mpirun --version | grep -q 'Open MPI' || by=PMI_RANK
    for i in 1 2 3; do
        holds "rank $i has a row" after 120 has_row "*-$host.$i-*"
        holds "rank $i hangs" after 60 hangs mk $by=$i
    done
    holds 'one has ended' after 120 test -e mk/"$host.0"
    kill -KILL "$(ranks mk $by=1)"
    kill -TERM "$(ranks mk $by=2)"
    holds 'the signal of a rank is in its file' after 60 grep -q '"signal": 15' mk/"$host.2".rank.json
    sleep 6 # in which mpirun would end it
    holds 'the others go on' test -n "$(ranks mk $by=3)"
    is mk/"$host.3" signal null
    kill -TERM $begun
    wait $begun
    holds 'a rank without an end is 20' test $? -eq 20
    whole mk/"$host.0"
    for i in 1 2 3; do kept mk/"$host.$i"; done
    is mk/"$host.1" ended_utc null
    is mk/"$host.1" signal null
    is mk/"$host.2" signal 15
    is mk/"$host.3" signal 15
    fit mk
    rm -r scratch/habench-*
    holds 'no rank is left' after 20 test -z "$(ranks mk)"
else
    echo 'not tried: MPI: there is no mpirun of Open MPI or MPICH'
fi

# ---- Slurm -----------------------------------------------------------------------------------------------------------

nodes=4
$all && nodes=8

daemons() { cat "$dir"/slurm/*.pid 2> /dev/null; }
# shellcheck disable=SC2046 # a word each
end_slurm()
{
    scancel --user "$(id -un)" > /dev/null 2>&1
    sleep 1
    kill $(daemons) 2> /dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 $(daemons) 2> /dev/null || return 0
        sleep 1
    done
    kill -KILL $(daemons) 2> /dev/null
}
trap 'end_slurm; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP

# slurmctld and as many slurmd as there are nodes, of this user, on ports of their own
start_slurm()
{
    command -v slurmctld > /dev/null && command -v slurmd > /dev/null && command -v srun > /dev/null || return 1
    mkdir slurm
    port=$((20000 + $$ % 30000))
    user=$(id -un) short=$(hostname -s)
    cat > slurm/slurm.conf << S
ClusterName=habench
SlurmctldHost=$short(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=$user
SlurmdUser=$user
StateSaveLocation=$dir/slurm
SlurmdSpoolDir=$dir/slurm/spool-%n
SlurmctldPidFile=$dir/slurm/slurmctld.pid
SlurmdPidFile=$dir/slurm/%n.pid
SlurmctldLogFile=$dir/slurm/slurmctld.log
SlurmdLogFile=$dir/slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
KillWait=20
JobRequeue=1
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=5
NodeName=node[1-$nodes] NodeHostname=$short NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
S
    export SLURM_CONF="$dir/slurm/slurm.conf"
    slurmctld > err 2>&1 || return 1
    for i in $(seq $nodes); do slurmd -N "node$i" >> err 2>&1 || return 1; done
    after 60 sh -c "[ \$(sinfo -h -N -t idle -o %N | sort -u | wc -l) -eq $nodes ]"
}
# submit OPTION... slurm.sh FLEET WORD...: its number
submit() { sbatch --parsable --output=job-%j.txt "$@" 2> err; }
# state JOB: such as COMPLETED
state() { scontrol show job -o "$1" 2> /dev/null | sed -n 's/.* JobState=\([A-Z_]*\) .*/\1/p' | tail -n 1; }
over() { case $(state "$1") in ''|PENDING|RUNNING|COMPLETING|REQUEUED|SUSPENDED) return 1 ;; esac; }
code() { scontrol show job -o "$1" 2> /dev/null | sed -n 's/.* ExitCode=\([0-9:]*\) .*/\1/p'; }

# a step of four nodes, each a machine; two of one node, each with a name
slurm_steps()
{
    job=$(submit -N 4 "$starters/slurm.sh" "$dir/s" check -q $quick)
    holds "job $job of four nodes ends" after 300 over "$job"
    holds "it is COMPLETED, not $(state "$job")" test "$(state "$job")" = COMPLETED
    for i in 1 2 3 4; do
        whole "s/node$i"
        is "s/node$i" launcher '"slurm"'
        is "s/node$i" job "\"$job\""
        is "s/node$i" rank $((i - 1))
        is "s/node$i" ranks 4
    done
    holds 'who has to be there is written down' test "$(tr '\n' ' ' < s/expected)" = 'node1 node2 node3 node4 '
    fit s
    job=$(submit -N 1 --ntasks-per-node=2 "$starters/slurm.sh" "$dir/two" check -q $quick)
    holds "job $job of two ranks of a node ends" after 300 over "$job"
    node=$(head -n 1 two/expected)
    whole "two/$node"
    whole "two/${node%.0}.1"
    holds 'two ranks of a node, and no more' test "$(find two -name '*.rank.json' | wc -l)" -eq 2
}

# Of the array, task 2 is killed, 3 hangs, 5 has a full scratch folder; $GO: they are as the others.
cat > faults << 'S'
#!/bin/sh
case ${SLURM_ARRAY_TASK_ID:-$SLURM_PROCID} in
    2|3) exec "$PROGRAM" run -q "$QUICK" "$SLOW" "$4" "$5" ;;
    5) ulimit -f 8; exec "$PROGRAM" check -q "$QUICK" "$QUICK,seed=2" "$QUICK,seed=3" "$4" "$5" ;;
    *) exec "$PROGRAM" check -q "$QUICK" "$4" "$5" ;;
esac
S
chmod +x faults

# machine FLEET RANK: its name
machine() { grep -l "\"rank\": $2,\$" "$1"/*.rank.json | sed 's|.*/||; s/\.rank\.json$//'; }

slurm_array()
{
    scontrol update nodename=node8 state=drain reason=test
    mkdir a
    scontrol show hostnames 'node[1-8]' > a/expected
    # the signal before the end of the time, one to two minutes from now
    told=$(submit -N 1 --time=3 "$starters/slurm.sh" "$dir/told" run -q $quick $slow)
    holds 'its case hangs' after 120 hangs "$dir/told"
    PROGRAM=$program QUICK=$quick SLOW=$slow HABENCH=$dir/faults
    export PROGRAM QUICK SLOW HABENCH
    # the end of the time, and no signal before it that ends anything: a minute is the least limit there is
    job=$(submit -N 1 --array=0-7 --time=1 --signal=CONT@1 "$starters/slurm.sh" "$dir/a" check -q $quick)
    for i in 2 3; do holds "task $i hangs" after 60 hangs "$dir/a" SLURM_ARRAY_TASK_ID=$i; done
    kill -KILL "$(ranks "$dir/a" SLURM_ARRAY_TASK_ID=2)"
    for i in 0 1 2 3 4 5 6 7; do holds "task $i is over" after 400 over "${job}_$i"; done
    HABENCH=$program
    for i in 0 1 4 6 7; do
        whole "a/$(machine a $i)"
        is "a/$(machine a $i)" launcher '"slurm-array"'
        is "a/$(machine a $i)" ranks 8
        is "a/$(machine a $i)" job "\"$job\""
        holds "task $i is COMPLETED" test "$(state "${job}_$i")" = COMPLETED
    done
    killed=a/$(machine a 2) hung=a/$(machine a 3) full=a/$(machine a 5)
    holds 'a rank that was killed has no record' test ! -e "$killed"
    is "$killed" ended_utc null
    is "$killed" exit null
    holds "its task is FAILED with 137:0 or 0:9, not $(code "${job}_2")" sh -c "echo '$(code "${job}_2")' | grep -q -x -e 137:0 -e 0:9"
    kept "$hung"
    is "$hung" signal 15
    is "$hung" exit null
    holds "a task that hangs is TIMEOUT, not $(state "${job}_3")" test "$(state "${job}_3")" = TIMEOUT
    kept "$full"
    is "$full" exit 40
    holds "a task with a full disk is FAILED with 40, not $(code "${job}_5")" test "$(code "${job}_5")" = 40:0
    holds 'it says which folder is full' grep -q 'node.*File too large.*make room' job-*.txt
    holds 'a drained node has no file' test ! -e a/node8.rank.json -a ! -e a/node8
    holds 'eight ranks began' test "$(find a -name '*.rank.json' | wc -l)" -eq 8
    fit a
    holds 'no rank is left' test -z "$(ranks "$dir/a")"
    holds "job $told is over" after 300 over "$told"
    told_node=told/$(machine told 0)
    is "$told_node" signal 15
    kept "$told_node"
    holds "a job that was told before its end is FAILED with 143, not $(code "$told")" test "$(state "$told") $(code "$told")" = 'FAILED 143:0'
    scontrol update nodename=node8 state=resume
    rm -rf scratch/habench-*
}

# requeue NAME NODE: a job on node1 that hangs is begun again, with a case that does not
requeue()
{
    cat > again << 'S'
#!/bin/sh
[ -z "$SLURM_RESTART_COUNT" ] || exec "$PROGRAM" run -q "$QUICK" resident:ctx=65 "$4" "$5"
exec "$PROGRAM" run -q "$QUICK" "$SLOW" "$4" "$5"
S
    chmod +x again
    PROGRAM=$program QUICK=$quick SLOW=$slow HABENCH=$dir/again
    export PROGRAM QUICK SLOW HABENCH
    job=$(submit -N 1 --exclude="node[2-$nodes]" "$starters/slurm.sh" "$dir/$1" check -q $quick)
    holds 'a row is complete' after 120 has_row "$job-node1-*"
    holds 'its case hangs' after 60 hangs "$dir/$1"
    row=$(grep $row_of scratch/habench-"$job"-node1-*/record/cases.csv)
    scontrol requeue "$job"
    holds 'the signal is in its file' after 60 grep -q '"signal": 15' "$1/node1.rank.json"
    kept "$1/node1"
    [ "$2" = node1 ] || scontrol update jobid="$job" excnodelist=node1
    holds "job $job ends" after 400 over "$job"
    holds "it is COMPLETED, not $(state "$job")" test "$(state "$job")" = COMPLETED
    HABENCH=$program
    again=$(find "$1" -name '*.rank.json' ! -name node1.rank.json | sed 's/\.rank\.json$//')
}

slurm_requeue()
{
    requeue same node1
    whole same/node1
    is same/node1 attempts 2
    is same/node1 restarts 1
    holds 'it goes on' grep -q "fleet: node1: attempt 2 goes on in $dir/scratch/habench-$job-node1-" "job-$job.txt"
    holds 'the row that was complete was not measured again' grep -q -x -F -e "$row" same/node1/cases.csv
    holds 'both attempts are in one text' test "$(grep -c 'ended by signal 15\|goes on in' "job-$job.txt")" -eq 2
    # the job as a whole again: what is complete is left alone
    written=$(stat -c %Y same/node1/cases.csv)
    scontrol requeue "$job"
    holds "job $job ends again" after 400 sh -c "grep -q 'nothing is measured again' 'job-$job.txt'"
    holds 'a record that is there stays' test "$(stat -c %Y same/node1/cases.csv)" = "$written"
    whole same/node1

    requeue other node2
    whole "$again"
    is "$again" attempts 1
    is "$again" restarts 1
    is other/node1 signal 15
    kept other/node1
    holds 'it begins anew, and says so' grep -q "rank 0 of job $job was on node1 before" "job-$job.txt"
    holds 'the row was measured anew' sh -c "! grep -q -x -F -e '$row' '$again/cases.csv'"
    fit same
    fit other
    rm -rf scratch/habench-*
}

if start_slurm; then
    echo "tried: $(slurmctld -V), $nodes slurmd"
    slurm_steps
    if $all; then slurm_array; slurm_requeue; fi
    rm -rf scratch/habench-*
else
    echo "not tried: Slurm: $(command -v slurmctld > /dev/null && tail -n 1 err || echo there is no slurmctld)"
fi
cd / || exit 1
finish
