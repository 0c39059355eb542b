#!/bin/sh
# check-docs.sh: every script that README, the docs, the build or another script calls by its path is there and can be run,
# and the command that setup.sh names at its end is one of README's. Prints each that is not; exit 1 if there is one.
LC_ALL=C
export LC_ALL
bad=0
say() { echo "$*" >&2; bad=1; }

pages=$(git ls-files '*.md' '*.ninja' '*.sh' '.ci/*' 2>/dev/null) || pages=
[ -n "$pages" ] || pages=$(find README.md docs scripts harness kernels reference datasets suites .ci -name '*.md' -o -name '*.ninja' -o -name '*.sh')
# shellcheck disable=SC2086 # names without blanks
for script in $(grep -h -o -E '(scripts|docs|\.ci)/[A-Za-z0-9_./-]*\.(sh|py)|\.ci/run' $pages README.md | sort -u); do
    [ -e "$script" ] || { say "$script: is called, and is not there"; continue; }
    case $script in scripts/audit/*|scripts/report/*|scripts/peers/cpu/*) continue ;; esac # parts, which nobody runs
    [ -x "$script" ] || say "$script: is called, and has no run bit"
done
for script in $(find scripts docs .ci -name '*.sh' -o -name '*.py' ! -path 'scripts/audit/*' ! -path 'scripts/report/*' ! -path 'scripts/peers/cpu/*'); do
    head -c 2 "$script" | grep -q '^#!' || say "$script: has no first line that says what runs it"
    [ -x "$script" ] || say "$script: has no run bit"
done
next=$(sed -n 's/.*now run: \([a-z ]*\)".*/\1/p' scripts/setup.sh)
grep -q "^    scripts/setup.sh && $next &&" README.md || say "scripts/setup.sh says '$next' at its end, README another command"
exit $bad
