#!/bin/sh
# probe-openmp.sh OUT CC [FLAG]...: OUT holds what links OpenMP's runtime: LLVM's (libomp) where it is, else gcc's.
# libomp also serves what gcc compiles, and can be told while it runs how long idle threads stay awake.
out=$1 cc=$2
shift 2
for got in -lomp -l:libomp.so.5 -lgomp; do
    if echo 'int main(void) { return 0; }' | "$cc" "$@" -x c -o /dev/null - -Wl,--no-as-needed $got 2>/dev/null; then break; fi
done
[ -f "$out" ] && [ "$(cat "$out")" = "$got" ] && exit 0
echo "$got" > "$out"
