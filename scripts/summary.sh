#!/bin/sh
# summary.sh OUT PROFILE LOG...: adds up cmocka's "[  PASSED  ] N test(s)." lines and the
# "N passed, N failed" lines of habench check; a log with neither is an error.
out=$1 profile=$2
shift 2
rm -f "$out"
awk -v profile="$profile" '
    FNR == 1 { files++ }
    /^\[  PASSED  \] [0-9]+ test/ { passed += $4; seen[FILENAME] = 1 }
    /^\[  FAILED  \] [0-9]+ test/ { failed += $4; seen[FILENAME] = 1 }
    /^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3; seen[FILENAME] = 1 }
    END {
        for (i = 1; i < ARGC; i++) if (!(ARGV[i] in seen)) { print ARGV[i] ": reports no test" > "/dev/stderr"; failed++ }
        printf "%s: %d test programs\n%d passed, %d failed\n", profile, files, passed, failed
        exit failed > 0 || passed == 0
    }' "$@" > "$out.part" || { cat "$out.part" >&2; exit 1; }
cat "$out.part"
mv "$out.part" "$out"
