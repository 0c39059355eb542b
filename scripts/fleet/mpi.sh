#!/bin/sh
# mpi.sh FLEET WORD...: `habench WORD... --fleet FLEET` as the ranks of one mpirun, of Open MPI or MPICH. FLEET is a folder
# that all machines see. MPIRUN is how ranks are begun, one on each machine, such as
#   MPIRUN='mpirun --hostfile hosts --map-by ppr:1:node'     Open MPI
#   MPIRUN='mpirun -f hosts -ppn 1 -n 8'                     MPICH
# and HABENCH the program on the machines. Exit code: the first of 10, 20 (also of a rank that did not end, or was killed, and of
# a machine that is expected and has none), 40, 64, 70 and 77 that a rank has, or 0. docs/fleet.md has what is in FLEET.
[ -n "${2:-}" ] || { echo 'usage: mpi.sh FLEET WORD...: FLEET is a folder that all machines see' >&2; exit 64; }
fleet=$1
shift
mpirun=${MPIRUN:-mpirun}
mkdir -p "$fleet" || exit 40

# From the signal that asks ranks to end to the one that kills them, in seconds: Open MPI 4 and 5, whose own is 1.
export OMPI_MCA_odls_base_sigkill_timeout=10 PRTE_MCA_odls_base_sigkill_timeout=10

# Who has to be there: what the machines call themselves, .N behind it where one has several ranks. What is written there stays.
if [ ! -e "$fleet/expected" ]; then
    # shellcheck disable=SC2086 # words
    $mpirun uname -n > "$fleet/.expected" || exit 40
    sort "$fleet/.expected" | uniq -c | awk '
        $1 < 2 { print $2; next }
        { for (i = 0; i < $1; i++) print $2 "." i }' > "$fleet/expected" || exit 40
    rm -f "$fleet/.expected"
fi

# mpirun ends all ranks when one ends with another code than 0, or is killed. So none does: what became of each is in FLEET. A
# signal to this script is one to mpirun, and that one to the ranks.
# shellcheck disable=SC2016 # for the shell of each rank
on='
    "$@" &
    begun=$!
    trap "kill -TERM $begun" TERM
    trap "kill -INT $begun" INT
    wait $begun
    while kill -0 $begun 2> /dev/null; do wait $begun; done'
# shellcheck disable=SC2086 # words
set -- $mpirun sh -c "$on
    exit 0" habench "${HABENCH:-habench}" "$@" --fleet "$fleet"
eval "$on"

# has_rank MACHINE: it has a file of a rank, by its own name or as MACHINE.N, or what it calls itself is that
has_rank()
{
    [ -n "$(ls "$fleet/$1.rank.json" "$fleet/$1".[0-9]*.rank.json 2> /dev/null)" ] ||
        cat "$fleet"/*.rank.json 2> /dev/null | grep -q -F "  \"host\": \"$1\","
}
# exits: the codes of all ranks, one a line; 20 for each machine that is expected and has none
exits()
{
    cat "$fleet"/*.rank.json 2> /dev/null | sed -n 's/^  "exit": \(.*\),$/\1/p'
    sed 's/#.*//' "$fleet/expected" | while read -r machine _; do
        [ -z "$machine" ] || has_rank "$machine" || { echo "mpi.sh: $machine: expected, and no rank has begun there" >&2; echo 20; }
    done
}
exits=$(exits)
[ -n "$exits" ] || { echo 'mpi.sh: no rank has begun' >&2; exit 20; }
for code in 10 20 40 64 70 77; do
    echo "$exits" | sed 's/^null$/20/' | grep -q -x $code && exit $code
done
exit 0
