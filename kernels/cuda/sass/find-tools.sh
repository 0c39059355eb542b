#!/bin/sh
# find-tools.sh OUT NVCC: OUT names the folder of cuobjdump and nvdisasm: that of the nvcc that the file NVCC names,
# build/cuda_tools, which scripts/setup.sh --cuda fills, or that of the ones in $PATH; or is empty: none is here of a
# release that prints JSON.
out=$1 nvcc=$(cut -d ' ' -f 1 "$2") say=
path=$(command -v nvdisasm) && path=$(dirname "$path")
for dir in "$(dirname "$nvcc")" build/cuda_tools/bin "$path"; do
    [ -x "$dir/cuobjdump" ] && "$dir/nvdisasm" --help 2>/dev/null | grep -q -e --emit-json && say=$dir && break
done
[ -f "$out" ] && [ "$(cat "$out")" = "$say" ] || echo "$say" > "$out"
