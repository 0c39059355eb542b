#!/bin/sh
# summary.sh OUT PROFILE LOG...: adds up what each log's runner says at its end: cmocka's
# "[  PASSED  ] N test(s)." or the last "N passed, N failed" line. A log with neither is a failure. A LOG may be a
# summary itself: then its programs count.
out=$1 profile=$2
shift 2
rm -f "$out"
awk -v profile="$profile" '
    function close_file() {
        if (cmocka) { passed += cp; failed += cf }
        else if (plain) { passed += pp; failed += pf }
        else { print name ": reports no test" > "/dev/stderr"; failed++ }
    }
    / test programs$/ { programs += $(NF - 2) - 1 }
    FNR == 1 { if (files++) close_file(); name = FILENAME; cmocka = plain = cp = cf = 0 }
    /^\[  PASSED  \] [0-9]+ test/ { cmocka = 1; cp += $4 }
    /^\[  FAILED  \] [0-9]+ test/ { cmocka = 1; cf += $4 }
    /^[0-9]+ passed, [0-9]+ failed/ { plain = 1; pp = $1; pf = $3 }
    END {
        if (files) close_file()
        for (i = files + 1; i < ARGC; i++) failed++   # empty logs have no first line
        printf "%s: %d test programs\n%d passed, %d failed\n", profile, files + programs, passed, failed
        exit failed > 0 || passed == 0
    }' "$@" > "$out.part" || { cat "$out.part" >&2; exit 1; }
cat "$out.part"
mv "$out.part" "$out"
