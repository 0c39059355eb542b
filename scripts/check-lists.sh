#!/bin/sh
# check-lists.sh: nothing that was written is left out. Every source is built, every test runs,
# every contract's header is compiled by itself, every implementer is registered.
# Prints each omission; exit 1 if there is one.
LC_ALL=C
export LC_ALL
bad=0
say() { echo "$*" >&2; bad=1; }

lists=$(find harness kernels reference datasets suites -name '*.ninja' | sort)
if [ -z "$lists" ] || [ ! -f harness/program/registry.def ]; then
    echo "check-lists.sh: no lists here; run it in the root of the tree" >&2
    exit 1
fi
# Continued lines joined, comments gone, each line between blanks.
# shellcheck disable=SC2086
text=$(cat build.ninja scripts/profile.ninja scripts/checks.ninja $lists | sed -e '/^[[:space:]]*#/d' | sed -e ':a' -e '/\$$/{N;s/\$\n[[:space:]]*/ /;ba' -e '}' -e 's/.*/ & /')
listed() { printf '%s\n' "$text" | grep -q -F -- "$1"; }

for list in $lists; do
    listed " include $list " || listed " subninja $list " || say "$list: included nowhere"
done
for file in $(find harness kernels reference datasets suites scripts/audit scripts/report -name '*.c' -o -name '*.cu' -o -path '*audit/*.py' -o -path 'scripts/report/*.py' -o -path 'kernels/*.py' | sort); do
    listed " $file " || say "$file: in no list of the build"
done
for program in $(printf '%s\n' "$text" | sed -n -E 's/^ build (\$o\/t\/[^: ]*): (link|test) .*/\1/p'); do
    groups=$(printf '%s\n' "$text" | sed 's#build/[a-z]*/#$o/#g' | grep -E '^ build \$o/[a-z_]*\.log: summary ' |
        grep -c -F -- " $program.log ")
    [ "$groups" -eq 1 ] || say "$program: its log is in $groups groups of scripts/checks.ninja or profiles of build.ninja, not in one"
done
for group in $(printf '%s\n' "$text" | sed -n -E 's/^ build \$o\/([a-z_]*)\.log: summary .*/\1/p'); do
    listed " build/release/$group.log " || say "$group: a group of scripts/checks.ninja that build.ninja never runs"
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
