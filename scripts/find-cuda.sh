#!/bin/sh
# find-cuda.sh DIR ARCH...: the CUDA toolkit that `ninja cuda` builds with: $HABENCH_CUDA, CUDA 12.9 or 12.8 in /usr/local
# (they know every ARCH, and what they build runs with older drivers than that of 13), /usr/local/cuda, that of the nvcc
# in $PATH, or build/cuda, which scripts/setup.sh --cuda fills; the first that has a compiler and a static runtime.
# DIR/root names it, DIR/libs is where its libraries are, DIR/driver the oldest driver for what it builds, and DIR/arch.rsp
# what its nvcc is to compile for: each ARCH that it knows, and the last of them for later GPUs, too. HABENCH_CUDA_ARCH="90" compiles for that alone, in a fraction of the time.
# Exit 1, and one line, where there is none.
dir=$1
shift
# shellcheck disable=SC2086 # a list of numbers
[ -z "$HABENCH_CUDA_ARCH" ] || set -- $HABENCH_CUDA_ARCH

# the library's folder goes by the toolkit's origin
libs_of() {
    for libs in "$1/lib64" "$1/lib" "$1/targets/x86_64-linux/lib"; do
        [ -f "$libs/libcudart_static.a" ] && echo "$libs" && return 0
    done
    return 1
}
usable() { [ -x "$1/bin/nvcc" ] && [ -f "$1/include/cuda_runtime_api.h" ] && libs_of "$1" >/dev/null; }
put() { [ -f "$2" ] && [ "$(cat "$2")" = "$1" ] || echo "$1" > "$2"; }

if [ -n "$HABENCH_CUDA" ]; then
    usable "$HABENCH_CUDA" && root=$HABENCH_CUDA
    [ -n "$root" ] || {
        echo "ninja cuda: HABENCH_CUDA=$HABENCH_CUDA has no bin/nvcc, include/cuda_runtime_api.h and libcudart_static.a" >&2
        exit 1
    }
else
    path=$(command -v nvcc) && path=$(dirname "$(dirname "$(readlink -f "$path")")")
    local=${HABENCH_USR_LOCAL:-/usr/local} # a test has its own
    for root in "$local/cuda-12.9" "$local/cuda-12.8" "$local/cuda" "$path" build/cuda ''; do
        [ -n "$root" ] && usable "$root" && break
    done
    [ -n "$root" ] || { echo "ninja cuda: no CUDA toolkit here: run scripts/setup.sh --cuda, or set HABENCH_CUDA to where one is" >&2; exit 1; }
fi

known=$("$root/bin/nvcc" --list-gpu-code) || { echo "ninja cuda: $root/bin/nvcc does not run" >&2; exit 1; }
flags= last=
for arch in "$@"; do
    echo "$known" | grep -q -x "sm_$arch" || continue
    flags="$flags -gencode arch=compute_$arch,code=sm_$arch"
    last=$arch
done
[ -n "$last" ] || { echo "ninja cuda: $root/bin/nvcc compiles for none of: $*" >&2; exit 1; }

# A driver runs what any toolkit of its own major version builds: 580 is the oldest of CUDA 13, and of 12 the oldest that
# takes more than 4,096 bytes of arguments is that of 12.1, before which no compiler takes them either.
release=$("$root/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\),.*/\1/p')
case $release in
    13.*) driver=580 ;;
    12.[1-9]*) driver=530 ;;
    *) echo "ninja cuda: $root/bin/nvcc is of CUDA ${release:-it does not say which}: the kernels need 12.1 or later, or 13" >&2; exit 1 ;;
esac

mkdir -p "$dir"
put "$root" "$dir/root"
put "$(libs_of "$root")" "$dir/libs"
put "$driver" "$dir/driver"
# Code for six targets takes room. What this makes smallest no driver before that of CUDA 12.4 (550) can read.
if [ "$driver" = 580 ]; then small='--compress-mode size'; else small='-Xfatbin -compress-all'; fi
put "$flags -gencode arch=compute_$last,code=compute_$last $small" "$dir/arch.rsp"
