#!/bin/sh
# check-headers.sh: every contract's header compiles by itself, as C and as C++ (where gcc came without its C++, as C).
# What was checked is not checked again until a header changes.
set -eu
stamp=build/headers.checked
flags="-Wall -Wextra -Wno-unused-parameter -Wpedantic -Werror -Wno-unused-function -I. -fsyntax-only"
headers=$(find harness kernels reference datasets suites -name '*.h' ! -path '*/cuda/*' ! -name 'test_*' ! -name simd.h ! -name specialised.h | sort)
# shellcheck disable=SC2086 # names without blanks
if [ -e $stamp ] && [ -z "$(find $headers scripts/check-headers.sh -newer $stamp -print -quit)" ]; then exit 0; fi
echo "$headers" | xargs -P "$(nproc)" -n 1 gcc -std=c17 -D_DEFAULT_SOURCE -D_XOPEN_SOURCE=700 $flags -x c
if gcc -x c++ -fsyntax-only /dev/null 2>/dev/null; then
    find harness/api harness/base -name '*.h' ! -name team.h | xargs -P "$(nproc)" -n 1 gcc -std=c++17 $flags -Wno-pedantic -x c++
fi
mkdir -p build
touch $stamp
