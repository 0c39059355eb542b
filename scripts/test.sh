#!/bin/sh
# test.sh: what the tests that are scripts share, each of which reads it in: a folder of its own, $dir, that goes when it
# ends, and the counts that its last line gives to scripts/summary.sh.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

pass() { passed=$((passed + 1)); }

# fail TEXT: with what the latest command wrote to $dir/err, and where it says what is wrong, to $dir/out
fail()
{
    failed=$((failed + 1))
    echo "FAILED: $*"
    [ ! -f "$dir/err" ] || tail -n 5 "$dir/err" | cut -c1-300 | sed 's/^/    stderr: /'
    [ ! -f "$dir/out" ] || grep '^    ' "$dir/out" | head -n 5 | cut -c1-300 | sed 's/^/    stdout: /'
}

# holds TEXT COMMAND...: the command succeeds
holds()
{
    text=$1
    shift
    if "$@"; then pass; else fail "$text"; fi
}

# expect CODE TEXT ARG...: $program ends with the exit code, and prints TEXT
expect()
{
    code=$1 text=$2
    shift 2
    # shellcheck disable=SC2154 # of the test
    timeout 600 "$program" "$@" > "$dir/out" 2> "$dir/err" < /dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then fail "habench $*: exit code $got, not $code"
    elif ! cat "$dir/out" "$dir/err" | grep -qF -e "$text"; then fail "habench $*: does not say: $text"
    else pass; fi
}

# own_suites: a copy of $program in $dir/bin, for which $dir/suites are the suites that come with it
own_suites()
{
    mkdir "$dir/suites" "$dir/bin" && cp "$program" "$dir/bin/habench" || exit 1
    for plugin in "$(dirname "$program")"/ha_*.so; do ln -s "$(realpath "$plugin")" "$dir/bin/"; done
    ln -s "$(realpath kernels)" "$dir/kernels" # the plans
    program=$dir/bin/habench
}

# No process whose command line names the folder, within 10 seconds.
nobody_is_left()
{
    echo "$dir/" > "$dir/name"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(cd "$dir" && grep -l -s -F -f name /proc/[0-9]*/cmdline | wc -l)" -eq 0 ] && return 0
        sleep 1
    done
    return 1
}

# The last command of a test.
finish()
{
    echo "$passed passed, $failed failed"
    test "$failed" -eq 0
}
