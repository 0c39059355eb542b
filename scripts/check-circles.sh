#!/bin/sh
# check-circles.sh OUT ARCHIVE: no two files of the archive call each other, directly or round about. What each member
# defines and what it needs of the others is asked of nm, and tsort finds the circles. Writes OUT if there is none.
LC_ALL=C
export LC_ALL
out=$1 archive=$2
edges=$(nm -A -p "$archive" | awk '
    { split($1, at, ":"); member = at[2]; name = $NF; kind = $(NF - 1) }
    kind == "U" { needs[member " " name]; next }
    kind ~ /^[A-Z]$/ { home[name] = member }
    END { for (n in needs) { split(n, p, " "); if (p[2] in home && home[p[2]] != p[1]) print p[1], home[p[2]] } }' | sort -u)
[ -n "$edges" ] || { echo "$archive: nm shows no file that needs another" >&2; exit 1; }
if ! circles=$(echo "$edges" | tsort 2>&1 >"$out"); then
    rm -f "$out"
    echo "$archive: files that call each other:" >&2
    echo "$circles" >&2
    exit 1
fi
