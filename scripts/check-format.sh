#!/bin/sh
# check-format.sh: the layout of C sources is that of .clang-format, and no line is longer than 120 columns, also where the
# formatter breaks none. Versions of clang-format differ in what they make of it: with another one than 14 only the length
# is checked, and a line says so. What was checked is not checked again until it changes.
set -eu
stamp=build/format.checked
[ -e "$stamp" ] && newer="-newer $stamp" || newer=
[ -n "$newer" ] && [ -n "$(find .clang-format scripts/check-format.sh -newer "$stamp")" ] && newer=
mkdir -p build
touch "$stamp.part"
# shellcheck disable=SC2086 # no word or two
sources=$(find harness kernels reference datasets suites docs scripts -type f $newer \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) | sort)
version=$(clang-format --version 2>/dev/null | sed -E 's/.*version ([0-9]+).*/\1/') || version=
bad=0
if [ -n "$sources" ]; then
    # shellcheck disable=SC2086 # names without blanks
    awk 'length($0) > 120 { printf "%s:%d: %d columns, 120 are allowed\n", FILENAME, FNR, length($0); bad = 1 }
        END { exit bad }' $sources >&2 || bad=1
    if [ "$version" = 14 ]; then
        echo "$sources" | xargs -P "$(nproc)" -n 32 clang-format --dry-run -Werror || {
            echo "check-format.sh: clang-format -i FILE lays these out; where that is never enough, write them otherwise" >&2
            bad=1
        }
    fi
fi
[ "$version" = 14 ] || echo "check-format.sh: layout not checked: needs clang-format 14, here is ${version:-none}" >&2
if [ $bad -ne 0 ]; then rm -f "$stamp.part"; exit 1; fi
# with another version nothing is known of the layout, and the next one with version 14 must look at all
if [ "$version" = 14 ]; then mv "$stamp.part" "$stamp"; else rm -f "$stamp.part"; fi
