#!/bin/sh
# bundle.sh OUT.tar.gz DRIVER PROGRAM PLUGIN...: one tar that runs on a bare GPU machine: the program and its plugins, which
# need glibc alone, the suites, the traces and the docs. DRIVER is the oldest that the CUDA device runs with; NEEDS in the
# tar says so. Fails where a file needs a glibc younger than 2.31.
set -eu

oldest=2.31
out=$1 driver=$2
shift 2
name=$(basename "$out" .tar.gz)
work=${out%.tar.gz}.d
# younger VERSION: than $oldest
younger() { [ "$(printf '%s\n' "$1" "$oldest" | sort -V | tail -n 1)" != "$oldest" ]; }

for file in "$@"; do
    needs=$(readelf -V "$file" | sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    if younger "$needs"; then
        echo "bundle.sh: $file needs glibc $needs, not $oldest: give these symbols an older version in scripts/bundle/glibc.c:" >&2
        readelf --dyn-syms -W "$file" | grep -o '[^ ]*@GLIBC_[0-9.]*' | sort -u | while read -r symbol; do
            if younger "${symbol##*_}"; then echo "    $symbol" >&2; fi
        done
        exit 1
    fi
    foreign=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -v -E '^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux-x86-64\.so\.2)$' || true)
    if [ -n "$foreign" ]; then
        echo "bundle.sh: $file needs $foreign, which a bare machine lacks" >&2
        exit 1
    fi
    # glibc before 2.34 has these beside libc.so.6: a file that does not name their library finds them by luck
    symbols=$(readelf --dyn-syms -W "$file" | awk '$7 == "UND" { sub(/@.*/, "", $8); print $8 }')
    while read -r library names; do
        missing=$(echo "$symbols" | grep -E "^($names)" | tr '\n' ' ')
        [ -z "$missing" ] || readelf -d "$file" | grep -q -F "[$library]" ||
            { echo "bundle.sh: $file takes ${missing}from $library and is not linked with it: -l:$library" >&2; exit 1; }
    done << end
librt.so.1 shm_|mq_|aio_|lio_|timer_
libdl.so.2 dl(open|sym|vsym|close|error|addr|mopen|info)
libpthread.so.0 pthread_(create|join|detach|once|key_|setspecific|getspecific|kill|rwlock|spin)|sem_
end
done

rm -rf "$work"
mkdir -p "$work/$name/datasets" "$work/$name/docs"
for file in "$@"; do strip -o "$work/$name/$(basename "$file")" "$file"; done
find suites -name '*.suite' -o -name '*.steps' | while read -r suite; do
    mkdir -p "$work/$name/$(dirname "$suite")"
    cp "$suite" "$work/$name/$suite"
done
cp -r datasets/traces datasets/fits datasets/texts "$work/$name/datasets/"
mkdir -p "$work/$name/kernels" && cp -r kernels/plans "$work/$name/kernels/"
mkdir -p "$work/$name/scripts/peers" # of gpu_day.steps
cp -r scripts/sanitize.sh scripts/fleet "$work/$name/scripts/"
cp scripts/peers/torch_attention.py "$work/$name/scripts/peers/"
cp -r docs README.md LICENSE "$work/$name/"
cat > "$work/$name/NEEDS" << end
Linux on x86-64, glibc $oldest or later; for --device cuda an NVIDIA driver $driver or later. No packages, no toolkit.
end
# what is linked statically keeps its licence
mkdir "$work/$name/licenses"
for package in libcsv-dev libjansson-dev libhwloc-dev libinih-dev "gcc-$(gcc -dumpversion)-base"; do
    cp "/usr/share/doc/$package/copyright" "$work/$name/licenses/$package" 2>/dev/null ||
        echo "bundle.sh: no licence of $package in /usr/share/doc: add it before you hand the bundle on" >&2
done
tar -C "$work" --sort=name --owner=0 --group=0 -czf "$out.part" "$name"
rm -rf "$work"
mv "$out.part" "$out"
echo "bundle.sh: $out, $(($(wc -c <"$out") / 1000000)) MB: glibc $oldest or later, for GPUs an NVIDIA driver $driver or later"
case $driver in
    530) ;;
    *) echo "bundle.sh: for drivers from 530 on, install CUDA 12.8 or 12.9 (/usr/local/cuda-12.8, or HABENCH_CUDA names it) and run again" ;;
esac
