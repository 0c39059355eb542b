#!/bin/sh
# install.sh [--uninstall]: puts what `ninja` built into $PREFIX (/usr/local by default), below $DESTDIR where a package is made;
# `PREFIX=$HOME/.local ninja install` builds first. The program finds its suites, traces and plugins from where it is, so a
# prefix can be moved. --uninstall takes away the same files, and the folders of habench alone. BUILT, REPORT: the folders of
# what was built and of what `setup.sh --report` got, for the test.
set -eu
cd "$(dirname "$0")/.."
built=${BUILT:-build/release}
report=${REPORT:-build/report}
prefix=${PREFIX:-/usr/local}
case $prefix in /*) ;; *) echo "install.sh: PREFIX=$prefix is not an absolute path" >&2; exit 64 ;; esac
to=${DESTDIR:-}$prefix
man=$to/share/man/man1/habench.1
bash=$to/share/bash-completion/completions/habench
zsh=$to/share/zsh/site-functions/_habench
fish=$to/share/fish/vendor_completions.d/habench.fish

case ${1:-} in
    '') ;;
    --uninstall)
        rm -f "$to/bin/habench" "$to/bin/habench_meet" "$man" "$bash" "$zsh" "$fish"
        rm -rf "$to/lib/habench" "$to/share/habench"
        echo "install.sh: habench is gone from $to"
        exit 0 ;;
    -h | --help)
        echo "usage: [PREFIX=DIR] [DESTDIR=DIR] scripts/install.sh [--uninstall]"
        echo "Puts the program that \`ninja\` built, its suites, traces and plugins into DIR, /usr/local by default, or takes them away."
        exit 0 ;;
    *) echo "usage: [PREFIX=DIR] [DESTDIR=DIR] scripts/install.sh [--uninstall]" >&2; exit 64 ;;
esac

[ -x "$built/habench" ] || { echo "install.sh: $built/habench is not built; run ninja" >&2; exit 1; }
install -d "$to/bin" "$to/lib/habench"
install -m 755 "$built/habench" "$to/bin/habench"
# those that are no ha_*.so are found by `check --mutants` alone
install -m 644 "$built/ha_null.so" "$built/defects.so" "$built/cheats.so" "$built/sound.so" "$to/lib/habench/"
# there after `ninja cuda`; one of an earlier build need not fit this program
if [ -f "$built/ha_cuda.so" ]; then install -m 644 "$built/ha_cuda.so" "$to/lib/habench/"
else rm -f "$to/lib/habench/ha_cuda.so"; fi
# there after `ninja meet`
if [ -f "$built/habench_meet" ]; then install -m 755 "$built/habench_meet" "$to/bin/"
else rm -f "$to/bin/habench_meet"; fi
# there after `scripts/setup.sh --report`
rm -rf "$to/lib/habench/report"
if [ -f "$report/vega.js" ]; then
    find "$report" -type f ! -name '*.pyc' | while read -r file; do
        install -D -m 644 "$file" "$to/lib/habench/report/${file#"$report"/}"
    done
fi
find scripts/report scripts/report.py -type f ! -name '*.pyc' | while read -r file; do
    install -D -m 644 "$file" "$to/share/habench/$file"
done
find suites datasets/traces datasets/fits datasets/texts kernels/plans -name '*.suite' -o -name '*.steps' -o -name '*.csv' -o -path 'datasets/*' -type f | while read -r file; do
    install -D -m 644 "$file" "$to/share/habench/$file"
done
for file in scripts/sanitize.sh scripts/peers/torch_attention.py; do install -D -m 755 "$file" "$to/share/habench/$file"; done # of gpu_day.steps
install -D -m 644 LICENSE "$to/share/habench/LICENSE"
for file in scripts/fleet/*.sh; do install -D -m 755 "$file" "$to/share/habench/$file"; done
# what starts a night names the prefix, which is another where PREFIX is
nightly=share/habench/scripts/nightly
for file in scripts/nightly/*; do
    case $file in *.sh) mode=755 ;; *) mode=644 ;; esac
    install -D -m $mode "$file" "$to/$nightly/${file##*/}"
done
real=$(printf '%s\n' "$prefix" | sed 's/[&#\\]/\\&/g')
sed -i "s#/usr/local#$real#g" "$to/$nightly/habench.service" "$to/$nightly/crontab" "$to/$nightly/slurm.sh"

# page WORD FILE: what the program prints of its own options
page()
{
    install -d "$(dirname "$2")"
    "$built/habench" "$1" > "$2"
}
page --print-man "$man"
page --print-completion=bash "$bash"
page --print-completion=zsh "$zsh"
page --print-completion=fish "$fish"
echo "install.sh: habench is in $to/bin; its suites and traces in $to/share/habench"
