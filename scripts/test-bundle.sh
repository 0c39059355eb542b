#!/bin/sh
# test-bundle.sh: which CUDA toolkit is taken and what is asked of its compiler, over toolkits that say of themselves what
# they are; and that a bundle says what it needs.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
here=$(cd "$(dirname "$0")" && pwd)
unset HABENCH_CUDA HABENCH_CUDA_ARCH
export HABENCH_USR_LOCAL="$dir/local" PATH="$dir/path:/usr/bin:/bin"

# toolkit FOLDER RELEASE
toolkit() {
    mkdir -p "$1/bin" "$1/include" "$1/lib64"
    touch "$1/include/cuda_runtime_api.h" "$1/lib64/libcudart_static.a"
    cat > "$1/bin/nvcc" << end
#!/bin/sh
case \$1 in
    --list-gpu-code) printf 'sm_80\nsm_90\nsm_100\n' ;;
    --version) echo 'Cuda compilation tools, release $2, V$2.99' ;;
    --help) echo '--compress-mode [default,size,speed,balance,none]' ;;
esac
end
    chmod +x "$1/bin/nvcc"
}
# finds WHAT ROOT DRIVER: the toolkit that is taken
finds() {
    rm -rf "$dir/out"
    "$here/find-cuda.sh" "$dir/out" 80 90 100 > "$dir/err" 2>&1
    holds "$1: it is taken" test "$(cat "$dir/out/root" 2> /dev/null)" = "$2"
    holds "$1: its driver" test "$(cat "$dir/out/driver" 2> /dev/null)" = "$3"
}

toolkit "$dir/local/cuda" 13.0
finds 'CUDA 13' "$dir/local/cuda" 580
holds 'CUDA 13: its drivers read the smallest' grep -q -e '--compress-mode size' "$dir/out/arch.rsp"
toolkit "$dir/local/cuda-12.8" 12.8
finds 'CUDA 12.8 beside 13' "$dir/local/cuda-12.8" 530
holds 'CUDA 12: what drivers before 550 can read' test "$(grep -c -e '--compress-mode' "$dir/out/arch.rsp")" = 0
holds 'CUDA 12: all architectures' grep -q 'code=sm_100' "$dir/out/arch.rsp"
HABENCH_CUDA="$dir/local/cuda"
export HABENCH_CUDA
finds 'one that is named' "$dir/local/cuda" 580

for release in 11.8 12.0; do # 4,096 bytes of arguments are their most
    toolkit "$dir/old-$release" $release
    HABENCH_CUDA="$dir/old-$release"
    finds "CUDA $release" '' ''
    holds "CUDA $release: why not" grep -q "is of CUDA $release: the kernels need 12.1 or later" "$dir/err"
done
toolkit "$dir/first" 12.1
HABENCH_CUDA="$dir/first"
finds 'CUDA 12.1' "$dir/first" 530

echo 'int ha_none(void) { return 0; }' > "$dir/none.c" # a file that needs no glibc at all
gcc -shared -fPIC "$dir/none.c" -o "$dir/habench"
for driver in 530 580; do
    (cd "$here/.." && scripts/bundle.sh "$dir/bundle.tar.gz" $driver "$dir/habench") > "$dir/err" 2>&1
    holds "a bundle for driver $driver: the last line says so" grep -q "NVIDIA driver $driver or later" "$dir/err"
    holds "a bundle for driver $driver: NEEDS says so" \
        sh -c "tar -xzOf '$dir/bundle.tar.gz' bundle/NEEDS | grep -q 'an NVIDIA driver $driver or later'"
    holds "a bundle for driver $driver: what starts a fleet is in it" \
        sh -c "tar -tzf '$dir/bundle.tar.gz' | grep -q 'bundle/scripts/fleet/slurm.sh'"
    test $driver = 530 && want=1 || want=0
    grep -q 'for drivers from 530 on' "$dir/err"
    holds "a bundle for driver $driver: what would run with older ones" test $? -eq $want
done

# a symbol of librt in glibc 2.31, which the linker finds in libc.so.6 today
cat > "$dir/shm.c" << 'end'
__asm__(".symver old, shm_open@GLIBC_2.2.5");
extern int old(const char *name, int flags, unsigned mode);
int ha_shm(void) { return old("", 0, 0); }
end
gcc -shared -fPIC "$dir/shm.c" -o "$dir/ha_shm.so"
(cd "$here/.." && scripts/bundle.sh "$dir/bundle.tar.gz" 530 "$dir/ha_shm.so") > "$dir/err" 2>&1
holds 'a plugin that does not name librt is refused' test $? -eq 1
holds 'and is told which' grep -q 'takes shm_open from librt.so.1 and is not linked with it' "$dir/err"
gcc -shared -fPIC "$dir/shm.c" -o "$dir/ha_shm.so" -Wl,--no-as-needed -l:librt.so.1
(cd "$here/.." && scripts/bundle.sh "$dir/bundle.tar.gz" 530 "$dir/ha_shm.so") > "$dir/err" 2>&1
holds 'one that does is taken' test $? -eq 0

finish
