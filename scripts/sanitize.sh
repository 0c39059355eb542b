#!/bin/sh
# sanitize.sh TOOL CASE...: checks the cases under compute-sanitizer's TOOL (memcheck, racecheck, synccheck). HABENCH is the program,
# DEVICE the device. Exit status, as habench's: 10 the tool found something, or a case is wrong; 40 the tool says nothing of what it
# looked at, as where it has lost the process that uses CUDA; 77 it is not installed.
set -u
tool=$1
shift
PATH=$PATH:/usr/local/cuda/bin
command -v compute-sanitizer > /dev/null || { echo 'compute-sanitizer is not installed'; exit 77; }
log=$(mktemp) || exit 40
trap 'rm -f "$log"' EXIT
# CUDA is used by a process that the program forks, and not by the program; CUPTI is for one tool at a time
{
    HABENCH_CUPTI=off compute-sanitizer --tool "$tool" --target-processes all --require-cuda-init no --error-exitcode 10 \
        "$HABENCH" check -q "$@" --device "$DEVICE" 2>&1
    echo $? > "$log.code"
} | tee "$log"
read -r code < "$log.code"
rm -f "$log.code"
# "========= ERROR SUMMARY: 0 errors", "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)": only where it has looked
if summary=$(grep -E '^=+ (ERROR|RACECHECK) SUMMARY: ' "$log"); then
    echo "$summary" | grep -v -q -E ' SUMMARY: 0 (errors|hazards)' && exit 10
    exit "$code"
fi
echo "sanitize.sh: $tool has no summary: it has not looked at what runs on the device"
case $code in
    10 | 13? | 14?) exit "$code" ;; # habench's own, or killed
    *) exit 40 ;;
esac
