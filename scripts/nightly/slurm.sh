#!/bin/sh
#SBATCH --job-name=habench-night
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=01:30:00
#SBATCH --output=%x-%j.txt
# sbatch slurm.sh FOLDER [OPTION]...: a night of one node, whose nights have a folder of their own. For a node of yours add
# --nodelist=NODE, for a GPU --gpus=1 and the option --device cuda. HABENCH names the program. The exit code of the job is
# that of the night: sacct -j ID -o State,ExitCode, or without accounting scontrol show job ID, for some minutes.
[ -n "${1:-}" ] || { echo 'usage: sbatch slurm.sh FOLDER [OPTION]...: FOLDER is where the nights of all nodes are kept' >&2; exit 64; }
nights=$1/$(hostname -s)
shift
# Slurm runs a copy of this file, beside which there is no night.sh
exec "${HABENCH_SCRIPTS:-/usr/local/share/habench/scripts/nightly}/night.sh" "$nights" "$@"
