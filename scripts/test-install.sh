#!/bin/sh
# test-install.sh: installs the release build into a folder of its own and runs it there, from elsewhere; then takes it away.
# And the pages that the program prints of its options: every option is in each, and the shells that are here can read theirs.
cd "$(dirname "$0")/.." || exit 1
. scripts/test.sh
export DESTDIR="$dir/root" PREFIX=/opt/habench
to=$DESTDIR$PREFIX
program=$to/bin/habench

# does TEXT COMMAND...: it succeeds, and what it prints is only of interest where it does not
does()
{
    text=$1
    shift
    if "$@" > "$dir/err" 2>&1 < /dev/null; then pass; else fail "$text: $*"; fi
}
# says CODE TEXT WORD...: from another folder, without a word of the source tree, the program ends so and prints TEXT
says()
{
    right=$1 wanted=$2
    shift 2
    (cd "$dir" && "$program" "$@") > "$dir/err" 2>&1 < /dev/null
    code=$?
    holds "habench $* ends with $right, not $code" test $code -eq "$right"
    holds "habench $* says '$wanted'" grep -q -F -e "$wanted" "$dir/err"
}

does 'it installs' scripts/install.sh
says 0 'smoke ' list suites
says 0 'recency_split ' list suites
says 0 'gpu_day ' list suites
says 0 'smoke: habench' run gpu_day --dry-run
for file in sanitize.sh peers/torch_attention.py; do holds "gpu_day calls $file" test -x "$to/share/habench/scripts/$file"; done
says 0 'passed, 0 failed' check -q smoke -f resident
says 0 '1 passed, 0 failed' check -q resident:dataset=trace/english,ctx=1900,layers=1,steps=1
says 0 '1 passed, 0 failed' check -q fluxion:dataset=trace/english,ctx=1900,steps=1,fit=small
says 0 '1 passed, 0 failed' check -q overview -f fit=clo_small
says 0 'null       null    ' list devices
says 77 'null' check -q resident:ctx=64,layers=1,steps=1 --device null

# what starts a night finds the prefix, and night.sh the program beside which it was installed
nightly=$to/share/habench/scripts/nightly
for file in night.sh slurm.sh; do holds "$file is there, and runs" test -x "$nightly/$file"; done
for file in slurm.sh mpi.sh; do holds "fleet/$file is there, and runs" test -x "$to/share/habench/scripts/fleet/$file"; done
for file in habench.service habench.timer crontab github.yml README.md; do holds "$file is there" test -s "$nightly/$file"; done
for file in habench.service crontab slurm.sh; do
    holds "$file names the prefix" grep -q -F "$PREFIX/share/habench/scripts/nightly" "$nightly/$file"
    holds "$file names no other" sh -c "! grep -q /usr/local '$nightly/$file'"
done
"$nightly/night.sh" > "$dir/err" 2>&1
holds 'a night without a folder is a mistake' test $? -eq 64
# a device that is not there ends a night before it begins, and in one line of the program that was found
mkdir -p "$dir/some nights/cut/run"
(cd "$dir" && env -u HABENCH PATH=/usr/bin:/bin "$nightly/night.sh" "some nights" --device nosuch) > "$dir/err" 2>&1 < /dev/null
holds 'night.sh finds the program, and it says what is wrong' grep -q '^habench: .*nosuch' "$dir/err"
echo 'a header alone' > "$dir/some nights/cut/run/cases.csv"
printf '#!/bin/sh\necho "$@"\n' > "$dir/echo"
chmod +x "$dir/echo"
HABENCH="$dir/echo" "$nightly/night.sh" "$dir/some nights" -q > "$dir/err" 2>&1
holds 'a night without a row is nothing to be held against' sh -c "grep -q 'nightly -o .*Z -q' '$dir/err' && ! grep -q against '$dir/err'"
echo 'a row' >> "$dir/some nights/cut/run/cases.csv"
HABENCH="$dir/echo" "$nightly/night.sh" "$dir/some nights" -q > "$dir/err" 2>&1
holds 'one with a row is' grep -q -e "-o .*Z --against $dir/some nights -q" "$dir/err"

says 64 'of which DIR?' report
says 0 'habench: right' report --format md "$(pwd)/results/2026-11-22-xeon-2core"
mkdir "$dir/report"
does 'it installs without what the page is made with' env REPORT="$dir/report" scripts/install.sh
says 40 'scripts/setup.sh --report' report -o "$dir/page.html" "$(pwd)/results/2026-11-22-xeon-2core"
if [ -f build/report/vega.js ]; then
    does 'it installs with it' scripts/install.sh
    does 'it makes a page' "$program" report -o "$dir/page.html" results/2026-11-22-xeon-2core
    holds 'there is a page' test -s "$dir/page.html"
else echo 'SKIP: build/report is not here, so that none is installed: scripts/setup.sh --report'; fi

# with the plugin of `ninja cuda`, for which the emulated one stands here
mkdir "$dir/built"
cp build/release/habench build/release/ha_null.so build/release/defects.so build/release/cheats.so build/release/sound.so "$dir/built"
cp build/release/ha_cuda_emulated.so "$dir/built/ha_cuda.so"
echo '#!/bin/sh' > "$dir/built/habench_meet" # as after `ninja meet`
does 'it installs the CUDA device' env BUILT="$dir/built" scripts/install.sh
says 0 'cuda       emulated ' list devices
says 0 '1 passed, 0 failed' check -q resident:ctx=64,layers=1,steps=1 --device cuda
does 'it installs what ranks meet by' "$to/bin/habench_meet"
rm "$dir/built/ha_cuda.so" "$dir/built/habench_meet"
does 'it installs without it' env BUILT="$dir/built" scripts/install.sh
holds 'one of an earlier build is gone' test ! -e "$to/lib/habench/ha_cuda.so" -a ! -e "$to/bin/habench_meet"
says 40 'its plugin was not built' check -q resident:ctx=64,layers=1,steps=1 --device cuda
holds 'no path of the source tree in the program' sh -c "! strings -n 8 '$program' | grep -q -F '$(pwd)/suites'"

man=$to/share/man/man1/habench.1
bash=$to/share/bash-completion/completions/habench
zsh=$to/share/zsh/site-functions/_habench
fish=$to/share/fish/vendor_completions.d/habench.fish
for command in run check list probe nightly compare doctor report; do
    options=$("$program" $command --help | grep -o -E -e '--[a-z][a-z-]*' | grep -v -x -E -e '--(usage|version)' | sort -u)
    holds "$command has options" test -n "$options"
    for option in $options; do
        case $option in --help) continue ;; esac
        # of the man page and of bash: within the part of the command
        holds "$option of $command in the man page" sh -c "sed -n '/^.SS habench $command/,/^.SS/p' '$man' | sed 's/[\\\\]-/-/g' | grep -q -e '$option\\b'"
        holds "$option of $command for bash" sh -c "sed -n '/^        $command)/,/;;/p' '$bash' | grep -q -e ' $option\\b'"
        holds "$option of $command for zsh" sh -c "sed -n '/^        $command)/,/;;/p' '$zsh' | grep -q -e \"'$option[=[]\""
        holds "$option of $command for fish" grep -q -e "__fish_seen_subcommand_from.* $command\\b.*-l ${option#--}\\b" "$fish"
    done
done
# complete WORDS: what bash offers for the last of them, one a line
complete_in_bash()
{
    PATH="$to/bin:$PATH" bash --norc -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _habench; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$bash" "$@"
}
# complete_in_zsh WORDS: the line as a Tab behind them leaves it, from a shell on a terminal of its own
complete_in_zsh()
{
    rm -f "$dir/line"
    # shellcheck disable=SC2016 # zsh expands it
    timeout 600 zsh -f -c '
        zmodload zsh/zpty && zpty z zsh -f -i
        zpty -w z "PATH=$1/bin:\$PATH; fpath=($1/share/zsh/site-functions \$fpath); autoload -Uz compinit && compinit -u -D"
        zpty -w z "show() { print -r -- \$BUFFER > $2.part; mv $2.part $2 }; zle -N show; bindkey ^X show"
        zpty -w -n z "$3"
        until [[ -e $2 ]]; do zpty -r -t z said "*"; sleep 0.05; done' zsh "$to" "$dir/line" "$(printf '%s\t\030' "$*")" > /dev/null 2>&1
    tr ' ' '\n' < "$dir/line"
}
complete_in_fish()
{
    fish --no-config -c "set -x PATH $to/bin \$PATH; source $fish; complete -C '$*'" | cut -f 1
}
offers()
{
    want=$1
    shift
    complete_in_$shell "$@" > "$dir/err" 2>&1
    holds "$shell offers $want for: $*" grep -q -x -e "$want" "$dir/err"
}
for shell in bash zsh fish; do
    command -v $shell > /dev/null || { echo "SKIP: $shell is not here"; continue; }
    eval "does '$shell reads its page' $shell -n \"\$$shell\""
    offers check habench ch
    offers --max-time=\\? habench run --max
    offers smoke habench check smo
    offers host habench run --device ho
    offers suites habench list sui
    offers smoke habench list cases smo
    offers json habench run --format js
    [ $shell = bash ] || offers suites/smoke.suite habench run suites/smo # bash adds files by itself
done
if command -v man > /dev/null; then
    LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l "$man" > /dev/null 2> "$dir/err"
    holds 'the man page is without a warning' test ! -s "$dir/err"
else echo 'SKIP: man is not here'; fi

does 'it says what it does' scripts/install.sh --help
does 'it uninstalls' scripts/install.sh --uninstall
holds 'nothing is left' sh -c "test -z \"\$(find '$DESTDIR' -type f)\""
finish
