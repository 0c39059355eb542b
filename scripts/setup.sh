#!/bin/sh
# setup.sh: installs what the build and the tests need, from the packages of Debian or Ubuntu.
set -eu

packages="git ninja-build gcc g++ libc6-dev clang libomp-dev libclang-rt-dev \
libcsv-dev libhwloc-dev libjansson-dev libinih-dev libcmocka-dev libmpfr-dev"

usage() {
    cat <<EOF
usage: scripts/setup.sh [--dry-run]

Installs what building and testing habench needs, with apt-get: as root, or through sudo.
What is installed already is left as it is; run it as often as you like.

  --dry-run   only says what is missing
  --help      this text

Packages: $packages
EOF
}

elsewhere() {
    cat >&2 <<'EOF'
setup.sh: there is no apt-get here; install these by hand (names as far as we know them):
  Fedora      dnf install git ninja-build gcc gcc-c++ clang libomp-devel compiler-rt libcsv-devel hwloc-devel
              jansson-devel inih-devel libcmocka-devel mpfr-devel
  Arch        pacman -S git ninja gcc clang openmp compiler-rt hwloc jansson libinih cmocka mpfr
              and libcsv from the AUR
  openSUSE    zypper install git ninja gcc gcc-c++ clang libomp-devel hwloc-devel libjansson-devel inih-devel
              libcmocka-devel mpfr-devel, and libcsv from its source
  macOS       habench needs Linux (CPU pinning, /proc, huge pages): use a Linux container or virtual machine
Needed: gcc 12 or clang 14 or later, and ninja 1.11 or later.
EOF
    exit 1
}

dry_run=false
for argument in "$@"; do
    case $argument in
        -h|--help) usage; exit 0 ;;
        -n|--dry-run) dry_run=true ;;
        *) echo "setup.sh: unknown argument: $argument" >&2; usage >&2; exit 64 ;;
    esac
done
if ! command -v apt-get || ! command -v dpkg-query; then elsewhere; fi >/dev/null

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

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

need=1.11 have=$(ninja --version)
if [ "$(printf '%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
    echo "setup.sh: ninja is $have; the build needs $need or later (pip install ninja, or a later release of this system)" >&2
    exit 1
fi
echo "setup.sh: ready: ninja $have, gcc $(gcc -dumpfullversion), clang $(clang -dumpversion); now run: ninja check"
