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
got=
for library in $libraries; do
    if echo 'int main(void) { return 0; }' | "$cc" "$@" -x c -o /dev/null - "$library" 2>/dev/null; then
        got=$library
        break
    fi
done
[ "$got" ] || { echo "probe-openmp.sh: $cc links with none of$libraries: run scripts/setup.sh" >&2; exit 1; }
[ -f "$out" ] && [ "$(cat "$out")" = "$got" ] && exit 0
echo "$got" > "$out"
