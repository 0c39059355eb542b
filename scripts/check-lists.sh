#!/bin/sh
# check-lists.sh: nothing that was written is left out. Every source is built, every test runs,
# every contract's header is compiled by itself, every implementer is registered.
# Prints each omission; exit 1 if there is one.
LC_ALL=C
export LC_ALL
bad=0
say() { echo "$*" >&2; bad=1; }

if [ ! -f scripts/graph.ninja ] || [ ! -f harness/program/registry.def ]; then
    echo "check-lists.sh: no lists here; run it in the root of the tree" >&2
    exit 1
fi
scripts/graph.py --check || bad=1
# Continued lines joined, comments gone, each line between blanks.
text=$(cat build.ninja scripts/*.ninja kernels/cuda/*.ninja kernels/cuda/*/*.ninja | sed -e '/^[[:space:]]*#/d' | sed -e ':a' -e '/\$$/{N;s/\$\n[[:space:]]*/ /;ba' -e '}' -e 's/.*/ & /')
listed() { printf '%s\n' "$text" | grep -q -F -- "$1"; }

for file in $(find harness kernels reference datasets suites scripts/audit scripts/report -name '*.c' -o -name '*.cu' -o -path '*audit/*.py' -o -path 'scripts/report/*.py' -o -path 'kernels/*.py' | sort); do
    listed " $file " || say "$file: in no list of the build"
done
# Tests by hand alone: they wait for random moments, or need nvcc, for minutes.
by_hand=' $o/t/hostile_cli.log $o/t/kill.log $o/t/ptx_all.log $o/t/cuda_names.log $o/t/cuda_sass.log '
sums=$(printf '%s\n' "$text" | sed 's#build/release/#$o/#g' | grep -E '^ build [^:]*\.sum: tally ')
for log in $(printf '%s\n' "$text" | sed 's#build/release/#$o/#g' | sed -n -E 's/^ build (\$o\/[^: ]*\.log): run .*/\1/p'); do
    case $by_hand in *" $log "*) continue ;; esac
    printf '%s\n' "$sums" | grep -q -F -- " $log " || say "$log: in no tally of scripts/graph.ninja, scripts/profile.ninja or build.ninja"
done
all=$(printf '%s\n' "$text" | grep -E '^ build build/check-all.log: sum ')
for sum in $(printf '%s\n' "$text" | sed -n -E 's/^ build (\$o|build\/release)\/([a-z_]*\.sum): tally .*/\2/p' | grep -v '^quick\|^few'); do
    case $all in *"/$sum "*) ;; *) say "$sum: \`ninja check-all\` never runs it" ;; esac
done

# Definitions and declarations alike: a macro may have written the definition.
for symbol in $(find kernels reference datasets suites -name '*.[ch]' ! -name 'test_*' ! -name 'fake_*' -exec cat {} + |
    sed -n -E 's/^(extern )?const struct ha_(kernels|device_api|variant|definition|dataset|suite) (ha_(kernels|device|variant|definition|dataset|suite)_[^=;*]*).*/\3/p' |
    tr ',' '\n' | sed 's/^ *//; s/[][ ].*//' | sort -u); do
    kind=$(echo "$symbol" | sed -E 's/^ha_([a-z]+)_.*/\1/' | tr '[:lower:]' '[:upper:]')
    name=$(echo "$symbol" | sed -E 's/^ha_[a-z]+_//')
    # the symbol that a plugin exports, and that no list can name
    [ "$symbol" = ha_device_api ] && continue
    grep -q "^HA_$kind($name)" harness/program/registry.def || say "$symbol: not in harness/program/registry.def"
done
exit $bad
