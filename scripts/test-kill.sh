#!/bin/sh
# test-kill.sh PROGRAM KILLS [check|run]: a run over four suites is killed with SIGKILL at random moments, the program
# or its worker in turn by chance, and goes on with --resume until it is complete; then again in a new folder, until there
# were KILLS. What is in the folder at the end is what a run without kills writes: no line lost, torn or doubled.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1 kills=$2 mode=${3:-check}
killed=0 parents=0 children=0 rounds=0
words='resident:ctx=64,steps=2 offload:ctx=65,steps=2 hgca:ctx=300,steps=2 h2o:ctx=200,steps=2 streaming:ctx=100,steps=2
    link:piece=4K,layout=scattered link:piece=256,method=pinned lse_merge:case=one_state lse_merge:case=gaps,by=c
    cpu_kernels:kernel=merge,heads=4/2,head_dim=8 cpu_kernels:kernel=topk,ctx=100 cpu_kernels:kernel=softmax,ctx=100'
most_ms=900
if [ "$mode" = run ]; then
    words='resident:ctx=64,steps=2 offload:ctx=65,steps=2 hgca:ctx=300,steps=2 link:piece=64K,method=pinned'
    most_ms=9000
fi

# A number below $1.
below() { echo $(($(od -An -N4 -tu4 /dev/urandom) % $1)); }
nap() { sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }

# CSV to fields between tabs.
fields()
{
    awk '{
        out = ""; quoted = 0
        for (i = 1; i <= length($0); i++) {
            c = substr($0, i, 1)
            if (c == "\"") { if (quoted && substr($0, i + 1, 1) == "\"") { out = out c; i++ } else quoted = !quoted }
            else if (c == "," && !quoted) out = out "\t"
            else out = out c
        }
        print out (quoted ? "\tTORN" : "")
    }' "$1"
}

# What of each line a run without kills has, too: the columns named, sorted.
keys()
{
    fields "$1" | awk -F'\t' -v want="$2" '
        NR == 1 { columns = NF; for (i = 1; i <= NF; i++) at[$i] = i; n = split(want, name, " "); next }
        NF != columns { print "TORN " $0; next }
        { line = ""; for (i = 1; i <= n; i++) line = line " " (at[name[i]] ? $at[name[i]] : "-"); print line }' | sort
}

# shellcheck disable=SC2086 # words
start() { "$program" "$mode" -q $words -o "$1" --resume > "$dir/out" 2> "$dir/err" < /dev/null; }

wrong() { fail "round $rounds, after $killed kills: $*"; }

# Lines of samples differ in number from run to run: none of them is there twice, and every case that has some has its row.
compare()
{
    for file in cases.csv link.csv lse_merge.csv cpu_kernels.csv figures.csv accuracy.csv summary.csv; do
        [ -f "$dir/whole/$file" ] || { [ -f "$1/$file" ] && wrong "$file is new"; continue; }
        keys "$dir/whole/$file" 'case_id process figure step layer verdict' > "$dir/a"
        keys "$1/$file" 'case_id process figure step layer verdict' > "$dir/b"
        if cmp -s "$dir/a" "$dir/b"; then pass; else wrong "$file differs"; diff "$dir/a" "$dir/b" | head -5; fi
    done
    if [ -f "$1/samples.csv" ]; then
        keys "$1/samples.csv" 'case_id process role block iter' > "$dir/a"
        if grep -q TORN "$dir/a" || [ -n "$(uniq -d "$dir/a")" ]; then wrong 'samples.csv is torn or doubled'; else pass; fi
        keys "$1/samples.csv" case_id | uniq > "$dir/a"
        keys "$dir/whole/samples.csv" case_id | uniq > "$dir/b"
        if cmp -s "$dir/a" "$dir/b"; then pass; else wrong 'samples.csv lacks a case'; fi
    fi
    # each case once, and as many as the head says
    tests=$(grep -c '<testcase ' "$1/junit.xml")
    if grep -q "<testsuites name=\"habench\" tests=\"$tests\" failures=\"0\" errors=\"0\"" "$1/junit.xml" \
        && [ "$(grep -c '<testcase ' "$dir/whole/junit.xml")" -eq "$tests" ] && [ "$(tail -1 "$1/junit.xml")" = '</testsuites>' ]; then
        pass
    else wrong 'junit.xml'; fi
    if [ -n "$CHECK_XML" ]; then $CHECK_XML "$1" || wrong "$CHECK_XML"; fi
}

told() { echo "$killed kills: $parents of the program, $children of its worker; $rounds runs"; }
trap 'told; exit 143' TERM # one that is ended before all kills says how many there were

start "$dir/whole"
code=$?
[ $code -eq 0 ] || { wrong "the run without kills ends with $code"; exit 1; }

while [ $killed -lt "$kills" ] && [ $failed -eq 0 ]; do
    rounds=$((rounds + 1))
    folder=$dir/$rounds
    code=none
    while [ "$code" != 0 ]; do
        start "$folder" &
        pid=$!
        while [ $killed -lt "$kills" ]; do
            nap "$(below $most_ms)"
            run=$(cat "/proc/$pid/task/$pid/children" 2> /dev/null) # of the shell that waits for it
            run=${run%% *}
            [ -n "$run" ] || break
            worker=$(cat "/proc/$run/task/$run/children" 2> /dev/null)
            worker=${worker%% *}
            if [ "$(below 2)" -eq 0 ]; then
                kill -KILL "$run" 2> /dev/null && killed=$((killed + 1)) parents=$((parents + 1))
                break
            fi
            [ -n "$worker" ] && kill -KILL "$worker" 2> /dev/null && killed=$((killed + 1)) children=$((children + 1))
        done
        wait $pid
        code=$?
        case $code in
            0 | 40 | 137) ;;
            *) wrong "exit $code"; break ;;
        esac
        if [ $code -eq 40 ] && ! grep -q -e 'could not be judged' -e 'killed by SIGKILL, at its end' "$dir/err"; then wrong "exit 40 for another reason"; break; fi
    done
    [ $failed -eq 0 ] && compare "$folder"
    rm -rf "$folder"
done

holds 'nothing that was started is left' nobody_is_left
told
finish
