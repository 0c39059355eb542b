#!/bin/sh
# probe-cc.sh OUT CC FLAG...: OUT holds the flags if CC takes them all, else nothing.
out=$1 cc=$2
shift 2
if echo 'int x;' | "$cc" -Werror "$@" -x c -c -o /dev/null - 2>/dev/null; then got=$*; else got=; fi
[ -f "$out" ] && [ "$(cat "$out")" = "$got" ] && exit 0
echo "$got" > "$out"
