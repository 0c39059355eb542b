#!/bin/sh
# check-arm.sh [TEST...]: optional. Cross-compiles the program and the tests of the kernels for AArch64, and runs them under
# qemu's emulation of CPUs with NEON alone, with SVE of 256 and of 512 bits, and with SVE of a length that no table is for.
# What they link comes as packages of Debian or Ubuntu, unpacked into build/arm/root; nothing is installed.
# The logs go to build/arm/CPU/TEST.log. The last line is `N passed, N failed`; exit 1 where one failed, 77 where a tool is missing.
set -u
cd "$(dirname "$0")/.." || exit 1
root=build/arm/root
packages="libc6 libgcc-s1 libgomp1 libcmocka0 libcmocka-dev libhwloc15 libhwloc-dev libudev1 libcap2 \
libjansson4 libjansson-dev libcsv3 libcsv-dev libinih1 libinih-dev"

missing=
for tool in aarch64-linux-gnu-gcc qemu-aarch64 ninja; do command -v "$tool" > /dev/null || missing="$missing $tool"; done
if [ -z "$missing" ] && [ ! -f "$root/done" ]; then
    mkdir -p "$root/packages"
    # shellcheck disable=SC2086 # names without blanks
    if (cd "$root/packages" && apt-get download -q $(printf '%s:arm64 ' $packages)) > build/arm/packages.log 2>&1; then
        for package in "$root"/packages/*.deb; do dpkg -x "$package" "$root"; done
        touch "$root/done"
    else
        missing=" packages for arm64"
    fi
fi
if [ -n "$missing" ]; then
    cat >&2 <<EOF
check-arm.sh: missing:$missing. On Debian or Ubuntu:
    dpkg --add-architecture arm64 && apt-get update
    apt-get install ninja-build gcc-aarch64-linux-gnu qemu-user
EOF
    exit 77
fi

# PROGRAM:FILE of each test of kernels
tests=${*:-$(sed -n -E 's#^build \$o/(kernels/test_[a-z0-9_]*|harness/base/test_registry).log: run \$o/t/([^ ]*) .*#\2:\1#p' scripts/graph.ninja | sort)}
programs=build/arm/habench
for test in $tests; do programs="$programs build/arm/t/${test%%:*}"; done
# shellcheck disable=SC2086
if ! nice ninja -f scripts/arm.ninja $programs > build/arm/build.log 2>&1; then
    grep -A 20 '^FAILED' build/arm/build.log >&2
    exit 1
fi

run()
{
    nice qemu-aarch64 -L "$root" -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu" -cpu "$@"
}

passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail()
{
    failed=$((failed + 1))
    echo "check-arm.sh: $*" >&2
}

# One program's tests; where it ended without saying what failed, that is one failure.
run_test()
{
    file=${1##*/}
    log=build/arm/$name/$file.log
    run "$cpu" "build/arm/t/${1%%:*}" "$file" small > "$log" 2>&1
    status=$?
    ok=$(grep -c '^\[       OK \]' "$log") bad=$(grep -c '^\[  FAILED  \] [a-z]' "$log")
    if [ "$bad" -eq 0 ] && { [ $status -ne 0 ] || [ "$ok" -eq 0 ]; }; then bad=1; fi
    passed=$((passed + ok)) failed=$((failed + bad))
    [ "$bad" -eq 0 ] || echo "check-arm.sh: $name: $1: see $log" >&2
}

# The table used by default, and that one which this CPU lacks is refused and not run into.
run_program()
{
    log=build/arm/$name/list.log
    run "$cpu" build/arm/habench list kernels > "$log" 2>&1
    if grep -q "^$best .*used by default" "$log"; then pass; else fail "$name: $best is not the table used by default: see $log"; fi
    for isa in neon sve256 sve512; do
        grep -q "^$isa .*this CPU lacks it" "$log" || continue
        run "$cpu" build/arm/habench check -q --isa $isa resident:ctx=64,layers=1,steps=1 > "build/arm/$name/$isa.log" 2>&1
        if [ $? -eq 77 ]; then pass; else fail "$name: --isa $isa is not waived: see build/arm/$name/$isa.log"; fi
    done
    for case in resident cpu hgca; do
        log=build/arm/$name/$case.log
        if run "$cpu" build/arm/habench check -q $case:ctx=500,layers=1,steps=2,heads=4/1,head_dim=64 > "$log" 2>&1; then pass
        else fail "$name: check $case: see $log"; fi
    done
}

while read -r name best cpu; do
    mkdir -p "build/arm/$name"
    before=$passed
    for test in $tests; do run_test "$test" < /dev/null; done
    run_program < /dev/null
    echo "$name: qemu-aarch64 -cpu $cpu: $best is used; $((passed - before)) passed"
done <<EOF
neon neon max,sve=off
sve128 neon max,sve-default-vector-length=16
sve256 sve256 max,sve-default-vector-length=32
sve512 sve512 max,sve-default-vector-length=64
EOF
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
