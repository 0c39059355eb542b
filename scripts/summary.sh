#!/bin/sh
# summary.sh tally OUT LOG...: a line for each log of scripts/run.sh: passed, failed, CPU seconds, wall seconds, log. Tests say
# how many they are as cmocka does ("[  PASSED  ] N test(s).") or by a last line "N passed, N failed"; a log with neither is
# one failure, and so is a test that left no log.
# summary.sh sum OUT TALLY...: prints what failed with the line that runs it alone, the ten dearest tests, and the sums. Its
# last line is "N passed, N failed"; exit code 1 if something failed.
mode=$1 out=$2
case $mode:$# in
    tally:[3-9]* | tally:[1-2][0-9]* | sum:[3-9]* | sum:[1-2][0-9]*) shift 2 ;;
    *) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,$p' >&2; exit 64 ;;
esac
LC_ALL=C
export LC_ALL
rm -f "$out"

if [ "$mode" = tally ]; then
    for log in "$@"; do
        if [ -f "$log" ]; then echo "$log" "$log"; else echo "$log" "$log.failed"; fi
    done | awk '
        function seconds(text,   part) { gsub(",", ".", text); split(text, part, /[ms]/); return 60 * part[1] + part[2] }
        {
            passed = failed = cmocka = plain = cpu = wall = 0
            while ((getline line < $2) > 0) {
                if (line ~ /^\[  PASSED  \] [0-9]+ test/) { cmocka = 1; split(line, word, " "); passed += word[4] }
                else if (line ~ /^\[  FAILED  \] [0-9]+ test/) { cmocka = 1; split(line, word, " "); failed += word[4] }
                else if (!cmocka && line ~ /^[0-9]+ passed, [0-9]+ failed/) { plain = 1; split(line, word, " "); passed = word[1]; failed = word[3] }
                else if (line ~ /^time: /) { split(line, word, " "); cpu = seconds(word[2]) + seconds(word[3]); wall = word[4] / 1000 }
            }
            close($2)
            if (failed == 0 && ($1 != $2 || (!cmocka && !plain))) failed = 1
            printf "%d %d %.2f %.2f %s\n", passed, failed, cpu, wall, $1
        }' > "$out.part" && mv "$out.part" "$out"
    exit
fi

awk '
    { passed += $1; failed += $2; cpu += $3; tests++; split($5, place, "/"); of[place[2]]++; in_[place[2]] += $3 }
    $2 > 0 { bad[++n] = $5 }
    { seconds[$5] = $3 }
    END {
        print "dearest tests by CPU time:"
        for (i = 0; i < 10 && i < tests; i++) {
            most = ""
            for (log_ in seconds) if (most == "" || seconds[log_] > seconds[most]) most = log_
            printf "  %6.1f s  %4.1f%%  %s\n", seconds[most], 100 * seconds[most] / (cpu + 1e-9), most
            delete seconds[most]
        }
        line = ""
        for (profile in of) line = line sprintf("%s%s: %d tests, %.0f s", line == "" ? "" : "; ", profile, of[profile], in_[profile])
        printf "%d tests took %.0f s of CPU time (%s)\n", tests, cpu, line
        if (n) print "failed:"
        for (i = 1; i <= n; i++) printf "  rm -f %s; ninja %s\n", bad[i], bad[i]
        printf "%d passed, %d failed\n", passed, failed
        exit (failed > 0 || passed == 0)
    }' "$@" > "$out.part"
status=$?
cat "$out.part"
if [ $status -eq 0 ]; then mv "$out.part" "$out"; fi
exit $status
