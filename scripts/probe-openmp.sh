#!/bin/sh
# probe-openmp.sh OUT CC LIBRARY... -- [FLAG]...: OUT holds the first library that CC, with these flags, links with.
out=$1 cc=$2
shift 2
libraries=
while [ "$1" != -- ]; do
    libraries="$libraries $1"
    shift
done
shift
for got in $libraries; do
    if echo 'int main(void) { return 0; }' | "$cc" "$@" -x c -o /dev/null - "$got" 2>/dev/null; then break; fi
done
[ -f "$out" ] && [ "$(cat "$out")" = "$got" ] && exit 0
echo "$got" > "$out"
