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
says 0 'passed, 0 failed' check -q smoke -f resident
says 0 '1 passed, 0 failed' check -q resident:dataset=trace/english,ctx=1900,layers=1,steps=1
says 77 'null' check -q resident:ctx=64,layers=1,steps=1 --device null
holds 'no path of the source tree in the program' sh -c "! strings -n 8 '$program' | grep -q -F '$(pwd)/suites'"

man=$to/share/man/man1/habench.1
bash=$to/share/bash-completion/completions/habench
zsh=$to/share/zsh/site-functions/_habench
fish=$to/share/fish/vendor_completions.d/habench.fish
for command in run check list probe; do
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
offers()
{
    want=$1
    shift
    complete_in_bash "$@" > "$dir/err" 2>&1
    holds "bash offers $want for: $*" grep -q -x -e "$want" "$dir/err"
}
does 'bash reads its page' bash -n "$bash"
offers check habench ch
offers --max-time habench run --max
offers smoke habench check smo
offers host habench run --device ho
offers suites habench list sui
for shell in zsh fish; do
    command -v $shell > /dev/null || { echo "not tested: $shell is not here"; continue; }
    case $shell in zsh) does 'zsh reads its page' zsh -n "$zsh" ;; fish) does 'fish reads its page' fish -n "$fish" ;; esac
done
if command -v man > /dev/null; then
    LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l "$man" > /dev/null 2> "$dir/err"
    holds 'the man page is without a warning' test ! -s "$dir/err"
else echo 'not tested: man is not here'; fi

does 'it uninstalls' scripts/install.sh --uninstall
holds 'nothing is left' sh -c "test -z \"\$(find '$DESTDIR' -type f)\""
finish
