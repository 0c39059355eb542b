#!/bin/sh
# publish.sh OUT [NAME]: lays a day or a night (`habench run gpu_day -o OUT`, `habench nightly -o OUT`) or a run under results/NAME
# with a line for it in results/README.md, to be read before it is committed, and pages: figures.md has its verdict and what each step
# printed that measured; report.html, where `scripts/setup.sh --report` was run, is that of `habench report`. Left out are samples.csv,
# accuracy.csv and trace.json, figures.csv and counters.csv of what was only checked, all of them large, and machine.txt; the name of the
# folder is shortened. What was emulated is refused. It is made in NAME.part.
# HABENCH: the program, otherwise that of this tree; RESULTS: the folder, otherwise results/.
set -eu
out=${1:-}
[ -n "$out" ] || { echo 'usage: publish.sh OUT [NAME]: OUT is what -o named' >&2; exit 64; }
refuse() { echo "publish.sh: $out: $*" >&2; exit 64; }
here=$(dirname "$0")/..
program=${HABENCH:-$here/build/release/habench} results=${RESULTS:-$here/results}
[ -d "$out" ] || refuse 'there is no such folder'

# value NAME FILE: of the first member of that name whose value is a text
value() { sed -n 's/^ *"'"$1"'": "\(.*\)",\{0,1\}$/\1/p' "$2" | head -n 1; }

env=$(find "$out" -name env.json | sort | head -n 1)
[ -n "$env" ] || refuse 'no env.json is in it: nothing was run'
kinds=$(find "$out" -name env.json -exec sed -n 's/^ *"kind": "\(.*\)",\{0,1\}$/\1/p' {} + | sort -u | tr '\n' ' ' | sed 's/ $//')
case " $kinds " in *' emulated '*) refuse 'it ran on the emulated device, whose times are no figures' ;; esac
if [ -f "$out/night.json" ]; then
    verdict=$(value verdict "$out/night.json")
    [ -n "$verdict" ] || refuse 'night.json has no verdict: it has not ended'
    day=$(value day "$out/night.json") from=$out/night.json
    what=${day:+run $day}
    what=${what:-nightly}
else
    verdict='' from=$env what=$(value mode "$env")
fi
date=$(value date_utc "$from" | cut -c 1-10)
device=$(sed -n '/"devices"/,$p' "$env" | sed -n 's/^ *"name": "\(.*\)",\{0,1\}$/\1/p' | head -n 1)
slug=$(printf '%s' "${device:-$(value cpu "$env")}" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//' | cut -c 1-40)
name=${2:-${date:-$(date -u +%F)}-$slug}
case $name in */*|.*) refuse "NAME '$name' is no name of a folder" ;; esac
to=$results/$name
[ ! -e "$to" ] || refuse "$to is there; give another NAME"

rm -rf "$to.part"
page=$to.part/$name/figures.md
mkdir -p "$to.part/$name"
real=$(realpath "$out")
short() { sed "s#$(printf '%s' "$1" | sed 's/[].[*^$#\\]/\\&/g')#out#g"; }
# checked STEP: nothing was measured there
checked() { [ -f "$out/$1/env.json" ] && [ "$(value mode "$out/$1/env.json")" = check ]; }
(cd "$out" && find . -type f ! -name 'samples.csv' ! -name 'accuracy.csv' ! -name 'trace.json' ! -name 'machine.txt' \
    ! -name '*.part' ! -name '.*') | sort | while read -r file; do
    case $file in */figures.csv | */counters.csv) ! checked "$(dirname "$file")" || continue ;; esac
    mkdir -p "$to.part/$name/$(dirname "$file")"
    short "$real" < "$out/$file" | short "$out" > "$to.part/$name/$file"
done

# printed FILE: as it is
printed() { printf '```\n' && cat "$to.part/$name/$1" && printf '```\n\n'; }
{
    printf '# %s\n\n%s, %s, %s: `%s` at %s%s\n\n' "$name" "$device" "$(value cpu "$env")" "$kinds" "$what" "$(value build "$env")" \
        "${verdict:+, verdict: $verdict}"
    if [ -f "$out/night.json" ]; then
        printed report.txt
        sed -n 's/^ *"name": "\(.*\)",$/\1/p' "$out/night.json" | while read -r step; do
            [ -s "$to.part/$name/$step.txt" ] && ! checked "$step" || continue
            printf '## %s\n\n' "$step"
            printed "$step.txt"
        done
    else "$program" report "$to.part/$name" --format md; fi
} > "$page" || { rm -rf "$to.part"; echo "publish.sh: no page could be made of $out" >&2; exit 1; }
pages=figures.md
if "$program" report "$to.part/$name" -o "$to.part/$name/report.html" > /dev/null 2>&1 && [ -s "$to.part/$name/report.html" ]; then
    pages='figures.md`, `report.html'
else
    rm -f "$to.part/$name/report.html"
    echo "publish.sh: report.html is left out: scripts/setup.sh --report is for it" >&2
fi
mv "$to.part/$name" "$to"
rmdir "$to.part"
# shellcheck disable=SC2016 # quotes of a page
printf '| `%s` | %s, %s | %s | `%s` at %s%s: `%s` |\n' "$name" "$device" "$(value cpu "$env")" "$kinds" "$what" "$(value build "$env")" \
    "${verdict:+, verdict '$verdict'}" "$pages" >> "$results/README.md"
echo "publish.sh: $to, $(du -sk "$to" | cut -f 1) kB, and a line in $results/README.md: read both before you commit them"
