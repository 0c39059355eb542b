#!/bin/sh
# check-elsewhere.sh [KIND]: `ninja check` as on another machine, in a copy of this checkout and its build whose path has a
# blank. KIND is one of the words below; without it one is drawn, and printed. What the copy has built is not built again.
#   c avx2 avx512 ...   the CPU has that table of kernels and those below it, and no better ones (`habench list kernels`)
#   one_core            all processes share one core
#   locale              LC_ALL=de_DE.UTF-8, TZ=Asia/Kolkata; needs the package locales
#   user                an ordinary user, umask 077, with no HOME to write to; root alone can become that user
# The last line is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."
program=build/release/habench
[ -x $program ] || ninja release
here=$($program list kernels | sed -n 's/^\([a-z0-9_]*\) .*available.*/\1/p')
kinds="$(echo "$here" | sed '$d') one_core"
if [ -f /usr/share/i18n/locales/de_DE ]; then kinds="$kinds locale"; fi
if [ "$(id -u)" -eq 0 ]; then kinds="$kinds user"; fi
# shellcheck disable=SC2086 # each is a word
kind=${1-$(printf '%s\n' $kinds | shuf -n 1)} kinds=$(echo $kinds)
case " $kinds " in
    *" $kind "*) ;;
    *) echo "check-elsewhere.sh: '$kind' cannot be run here; there are: $kinds" >&2; exit 64 ;;
esac
echo "check-elsewhere.sh: $kind"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
copy="$place/a copy"
mkdir "$copy"
git ls-files -z | xargs -0 cp -a --parents -t "$copy" 2>/dev/null
cp -a .git build "$copy"
find "$copy/build" \( -name '*.log' -o -name '*.log.failed' \) -delete
cd "$copy"

case $kind in
    one_core) core=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//'); run="taskset -c $core env" ;;
    locale)
        mkdir "$place/locale"
        localedef -i de_DE -f UTF-8 "$place/locale/de_DE.UTF-8"
        run="env LOCPATH=$place/locale LC_ALL=de_DE.UTF-8 TZ=Asia/Kolkata" ;;
    user)
        chmod 711 "$place"
        chown -R nobody "$copy"
        umask 077
        run="setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/nonexistent" ;;
    *) run="env HABENCH_WITHOUT=$(echo "$here" | sed "1,/^$kind\$/d" | paste -s -d ,)" ;;
esac
# shellcheck disable=SC2086 # each is a word
$run ninja check
