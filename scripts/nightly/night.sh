#!/bin/sh
# night.sh FOLDER [OPTION]...: a night in FOLDER/DATE beside those that are there, for cron, systemd, Slurm and CI. Options are
# those of `habench nightly`; HABENCH names the program, which is otherwise the one installed with this script, or the one in
# PATH. Ends with the code of the night.
[ -n "${1:-}" ] || { echo 'usage: night.sh FOLDER [OPTION]...: FOLDER is where the nights are kept' >&2; exit 64; }
nights=$1
shift
installed=$(dirname "$0")/../../../../bin/habench
[ -x "$installed" ] || installed=habench
program=${HABENCH:-$installed}
command -v "$program" > /dev/null || { echo "night.sh: no program $program: set HABENCH to where habench is" >&2; exit 64; }
mkdir -p "$nights" || exit 40
tonight=$nights/$(date -u +%Y-%m-%dT%H%M%SZ)
# A night that was cut before its first row is nothing to be held against.
against=
for cases in "$nights"/*/run*/cases.csv; do
    [ -e "$cases" ] && tail -n +2 "$cases" | grep -q . && against=$nights
done
# exec: a signal to this process is one to the night, which keeps what was run
exec "$program" nightly -o "$tonight" ${against:+--against "$against"} "$@"
