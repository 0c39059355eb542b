#!/bin/sh
# compile.sh NVCC IN OUT: the PTX of a .cu file, by the nvcc that the file NVCC names, or nothing; as nvcc.ninja compiles it.
nvcc=$(cut -d ' ' -f 1 "$1") arch=$(cut -d ' ' -f 2 "$1") in=$2 out=$3
if [ -n "$nvcc" ]; then
    exec "$nvcc" -std=c++17 -O3 -fmad=false -arch="compute_$arch" -ptx -I. -MD -MF "$out.d" "$in" -o "$out"
fi
: > "$out"
echo "$out: $in" > "$out.d"
