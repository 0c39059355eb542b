#!/bin/sh
#SBATCH --job-name=habench-fleet
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --signal=TERM@60
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.txt
# sbatch -N 8 slurm.sh FLEET WORD...: `habench WORD... --fleet FLEET` on each of 8 nodes at once, and
# sbatch --array=0-7 -N 1 slurm.sh FLEET WORD...: on whichever are free, one after another; docs/fleet.md has what is in FLEET.
# FLEET is a folder that all nodes see. Without WORD: nightly -q --max-time 1h. HABENCH names the program on the nodes, such as
# /shared/bundle/habench. For a node of 8 GPUs add --ntasks-per-node=8 --gpus-per-node=8 and the words --device cuda.
# Here is what the lines above are for:
#   requeue, open-mode   a job that was preempted, or whose node failed, begins again, and each rank goes on where it was
#   no-kill              a node that fails does not take the others with it
#   signal               60 s before the time is over ranks are told to end, and keep what is complete
# The exit code of the job is the largest of its ranks.
[ -n "${1:-}" ] || { echo 'usage: sbatch -N NODES slurm.sh FLEET [WORD]...: FLEET is a folder that all nodes see' >&2; exit 64; }
fleet=$1
shift
[ $# -gt 0 ] || set -- nightly -q --max-time 1h
mkdir -p "$fleet" || exit 40

# Who has to be there, for who judges the fleet; an array does not know its nodes. What is written there already stays.
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] && [ ! -e "$fleet/expected" ]; then
    scontrol show hostnames "$SLURM_JOB_NODELIST" | awk -v tasks="${SLURM_NTASKS_PER_NODE:-1}" '
        tasks < 2 { print; next }
        { for (i = 0; i < tasks; i++) print $0 "." i }' > "$fleet/expected" || exit 40
fi

# a rank that ends, well or not, ends no other
exec srun --kill-on-bad-exit=0 --wait=0 --no-kill "${HABENCH:-habench}" "$@" --fleet "$fleet"
