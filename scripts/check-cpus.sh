#!/bin/sh
# check-cpus.sh [PROGRAM]: optional. What habench does on older x86-64 CPUs: under qemu's emulation of them, and on this one by
# --without. The right table is used and said, its cases pass, and one that is not there is refused, never run into.
# The last line is `N passed, N failed`; exit 1 where one failed, 77 without qemu-x86_64.
set -u
cd "$(dirname "$0")/.." || exit 1
program=${1:-build/release/habench}
if ! command -v qemu-x86_64 > /dev/null; then
    echo "check-cpus.sh: missing: qemu-x86_64. On Debian or Ubuntu: apt-get install qemu-user" >&2
    exit 77
fi
[ -x "$program" ] || { echo "check-cpus.sh: $program: not built; run ninja" >&2; exit 1; }
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

passed=0 failed=0
# expect CODE TEXT COMMAND...
expect()
{
    code=$1 text=$2
    shift 2
    nice "$@" > "$out" 2>&1 < /dev/null
    got=$?
    if [ $got -eq "$code" ] && grep -q -e "$text" "$out"; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAILED: $*: exit code $got, not $code, or it does not say: $text" >&2
    grep -v '^qemu-x86_64: warning' "$out" | head -n 5 | sed 's/^/    /' >&2
}

shape=ctx=500,layers=1,steps=2,heads=4/1,head_dim=64
tables=$("$program" list kernels | sed 's/ .*//')
# HAS COMMAND...: the tables that there are (joined by commas), the last of them used by default; any other must be refused
on()
{
    here=,$1,
    best=${1##*,}
    shift
    expect 0 "^$best .*used by default" "$@" list kernels
    for isa in $tables; do
        case $here in *,$isa,*) continue ;; esac
        expect 0 "^$isa .*this CPU lacks it\|^$isa .*not compiled" "$@" list kernels
        expect 77 "instruction set $isa" "$@" check -q --isa "$isa" resident:$shape
    done
    for case in resident: cpu:dtype=bf16, hgca:dtype=f32,; do
        expect 0 '^1 passed, 0 failed' "$@" check -q $case$shape
    done
}

while read -r has cpu; do
    before=$passed
    on "$has" qemu-x86_64 -cpu "$cpu" "$program"
    echo "qemu-x86_64 -cpu $cpu: ${has##*,} is used; $((passed - before)) passed"
done <<EOF
c qemu64
c Nehalem
c SandyBridge
c Haswell,-fma
c Haswell,-f16c
c Haswell,-xsave
c,avx2 Haswell
c,avx2 EPYC
c,avx2 Skylake-Server
c,avx2 Cooperlake
c,avx2 max
EOF

# This CPU: each extension that it has is taken away in turn, and what builds on it goes too.
below=
for isa in $("$program" list kernels | sed -n 's/ .*available.*//p'); do
    if [ -n "$below" ]; then
        expect 0 "^$below .*used by default" "$program" list kernels --without "$isa"
        expect 0 "^$isa .*masked by --without" "$program" list kernels --without "$isa"
        expect 77 'masked by --without' "$program" check -q --isa "$isa" --without "$isa" resident:$shape
        expect 0 '^1 passed, 0 failed' "$program" check -q --without "$isa" "cpu:$shape"
    fi
    below=$isa
done
expect 64 "unknown instruction set 'avx22'; did you mean 'avx2'?" "$program" list kernels --without avx22
expect 64 'cannot be masked' "$program" list kernels --without c
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
