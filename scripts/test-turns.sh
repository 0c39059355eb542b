#!/bin/sh
# test-turns.sh PROGRAM DEFECTS: `habench compare --run` from outside: sides, words, folders, codes. No test asks how fast this
# machine is: what is decided is decided by harness/compare/test_turns.c, and here by programs that say what they took.
# DEFECTS: a device that is wrong.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
real=$(realpath "$1") wrong=$(realpath "$2")
cd "$dir" || exit 1
export XDG_CACHE_HOME="$dir/empty"

# fake NAME TIME [VERDICT]: a program that says that it is habench, has two cases, and took TIME ns, or up to 0.7% more, for b
fake()
{
    cat > "$1" <<S
#!/bin/sh
case "\$*" in
--version) echo habench $1 ;;
*--dry-run*) echo a:x=1; echo b:x=1; echo only:$1=1 ;;
*b:x=1*) echo "\$0" >> order; ${3:-:}; took=$2 ;;
*) took=1000 ;;
esac
[ -n "\$took" ] || exit 0
echo '{"row":"case","verdict":"pass"}'
echo '{"row":"figure","figure":"err","value":7}'
echo "{\"row\":\"figure\",\"figure\":\"step_ns\",\"unit\":\"ns\",\"value\":\$((took + took * \$((1\$(date +%N | cut -c5-8) % 8)) / 1000))}"
S
    chmod +x "$1"
}
program=$real
fake old 100000
fake same 100000
fake slow 200000
fake fast 50000
fake waits 100000 'sleep 3'
fake fails 100000 'echo "{\"row\":\"case\",\"verdict\":\"fail\",\"reason\":\"bound\"}"; exit 10'
fake dies 100000 'echo it is broken >&2; kill -9 $$'
cases='-- a b'

# turns CODE OLD NEW: and the table says TEXT
turns()
{
    rm -rf d
    # shellcheck disable=SC2086 # words
    expect "$1" "$4" compare --run "$2" "$3" -q -o d $cases
}
turns 30 ./old ./slow 'slower'
holds 'the first line says by what, and in how many' sh -c "head -n 1 out | grep -Eq '^NEW takes (1.9|2|2.0)[0-9]* times as long \(.*\) in 1 of 2 cases, same 1$'"
holds 'what one side alone has is said' grep -q 'only:slow=1' out err
turns 0 ./old ./fast 'faster'
turns 0 ./old ./same 'same 2'
holds 'old is first in some blocks, and second in others' sh -c "[ \$(paste -d' ' - - < order | grep -c '^./old ') -gt 0 ] && paste -d' ' - - < order | grep -q ' ./old$'"
turns 10 ./old ./fails 'wrong       new: b:x=1: bound'
holds 'the other case is judged' grep -q '^same .*a:x=1' out
turns 10 ./fails ./old 'wrong       old: b:x=1: bound'
turns 10 ./old ./dies 'crashed     new: b:x=1: exit code 137: it is broken'
turns 20 ./dies ./old 'not judged  old: b:x=1: exit code 137'
turns 0 ./old ./old 'both are the same build'
cases='--max-time 1ms -- a b'
turns 20 ./old ./slow 'undecided 2'

# Ctrl-C: the verdict so far
rm -rf d order
"$program" compare --run ./waits ./waits -o d -- a b > out 2> err < /dev/null &
pid=$!
tries=0
until [ -s order ] || [ $tries -ge 600 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -INT $pid
wait $pid
code=$?
holds "an interrupted one ends with 130, not $code" test $code -eq 130
holds 'and says what is known' grep -q '^undecided .* b:x=1$' out

# the program itself, and a device: one block each, whatever it took; its records are read by who reads records
case=resident:ctx=64,layers=1,steps=1
rm -rf d
"$real" compare --run constants constants -q -o d --max-time 1s -- $case > out 2> err < /dev/null
holds "a block is run: $(cat err)" grep -q " 1  resident:" out
holds 'of one build' grep -q 'both are the same build' out
"$real" compare d/old d/new > out 2> err
holds 'compare reads both records' grep -q 'resident:.* step_ns' out
rm -rf d
expect 10 'wrong       new: resident:' compare --run constants "$wrong" -q -o d --max-time 1s -- $case

expect 64 'run what? OLD and NEW' compare --run old -o x
expect 64 'where to? -o DIR' compare --run ./old ./new
expect 64 './nosuch: there is no such program' compare --run ./old ./nosuch -o x
expect 64 'nosuch.so: there is no such device' compare --run ./old nosuch.so -o x
expect 64 'no path; a program is named as ./old' compare --run old ./old -o x
expect 64 '/bin/true is no habench' compare --run ./old /bin/true -o x
expect 64 "unknown variant or suite 'residnet'; did you mean 'resident'?" compare --run "$real" constants -o x -- residnet
expect 64 'chooses and sets cases; leave -o' compare --run ./old ./old -o x -- a --dry-run
expect 64 '-o and --max-time go with --run' compare d/old d/new -o x
expect 64 'the folder is not empty' compare --run ./old ./old -o d -- a
holds 'what is refused leaves no folder' test ! -e x
finish
