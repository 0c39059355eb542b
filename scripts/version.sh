#!/bin/sh
# version.sh OUT.c: the version as a C function; OUT.c changes only if the version does.
out=$1
version=$(git describe --always --dirty 2>/dev/null) || version=unknown
{
    echo '#include "harness/base/version.h"'
    echo
    echo "const char *ha_version(void) { return \"$version\"; }"
} > "$out.part"
if cmp -s "$out.part" "$out"; then rm "$out.part"; else mv "$out.part" "$out"; fi
