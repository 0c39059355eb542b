#!/bin/sh
# check-size.sh [BYTES]: the files that git tracks have at most BYTES together (40000000 by default), as they lie in the work tree.
# Prints the sum by top folder; exit 1 above it, with the ten largest files. Outside a git checkout it says so and passes.
LC_ALL=C
export LC_ALL
most=${1:-40000000}
root=$(git rev-parse --show-toplevel 2>/dev/null)
if [ "$root" != "$(pwd -P)" ]; then
    echo 'check-size.sh: this is not the root of a git checkout: no file is tracked, and no size is checked'
    exit 0
fi
# bytes and name of each; a file that is deleted in the work tree has none
files=$(git ls-files -z | xargs -0 stat -c '%s %n' 2>/dev/null | sort -u)
printf '%s\n' "$files" | awk -v most="$most" '
    { top = $2; if (!sub("/.*", "", top)) top = "."; of[top] += $1; sum += $1 }
    END {
        for (top in of) printf "%9d  %s\n", of[top], top | "sort -rn"
        close("sort -rn")
        printf "%9d  tracked, of at most %d\n", sum, most
        exit sum > most
    }' && exit 0
echo 'check-size.sh: too much is tracked: leave out, shorten or round what nothing reads. The ten largest files:' >&2
printf '%s\n' "$files" | sort -rn | head -n 10 >&2
exit 1
