#!/bin/sh
# night.sh FOLDER [OPTION]...: a night in FOLDER/DATE beside those that are there, for cron, systemd, Slurm and CI. Options are
# those of `habench nightly`; HABENCH names the program. Ends with the code of the night.
nights=$1
shift
program=${HABENCH:-habench}
mkdir -p "$nights" || exit 40
tonight=$nights/$(date -u +%Y-%m-%dT%H%M%SZ)
against=
for night in "$nights"/*/night.json; do
    [ -e "$night" ] && against=$nights
done
# shellcheck disable=SC2086 # nothing, or two words
exec "$program" nightly -o "$tonight" ${against:+--against "$against"} "$@"
