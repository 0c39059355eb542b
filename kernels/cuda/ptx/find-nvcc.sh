#!/bin/sh
# find-nvcc.sh OUT: OUT names the nvcc that scripts/find-cuda.sh finds, and what PTX it is to make, or is empty: none is here.
out=$1 arch=${HABENCH_PTX_ARCH:-90}
HABENCH_CUDA_ARCH=
export HABENCH_CUDA_ARCH
if scripts/find-cuda.sh "$out.found" "$arch" 2>/dev/null; then say="$(cat "$out.found/root")/bin/nvcc $arch"; else say=; fi
[ -f "$out" ] && [ "$(cat "$out")" = "$say" ] || echo "$say" > "$out"
