#!/bin/sh
# check-layers.sh: the include graph, strictly layered, and who may name an implementer.
#
#   harness/api <- harness/base <- kernels/X, reference, datasets, harness/measure <- harness/report <- harness/fleet <-
#   harness/engine, harness/doctor, harness/compare <- suites/X (without these three) <- harness/program
#
# A family of variants sees the api, base, suites/parts and what stands beside it. kernels/null, the skeleton of a plugin, sees the api
# alone. Tables of CPU kernels use kernels/c and those that they extend, kernels/vectors the vectors of all. A variant never includes another variant, and
# nothing includes a .c. Only the registry names implementers. Tests (test_*) and the stand-ins they share (fake_*) may
# include across.
# Prints each violation; exit 1 if there is one.
LC_ALL=C
export LC_ALL

sources=$(find harness kernels reference datasets suites -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' |
    grep -v -E '/(test|fake)_[^/]*$' | sort)
[ -n "$sources" ] || { echo "check-layers.sh: no sources here; run it in the root of the tree" >&2; exit 1; }

variants=$(sed -n 's/^HA_VARIANT(\(.*\)).*/\1/p' harness/program/registry.def)
# shellcheck disable=SC2086 # names without blanks
grep -H -n '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' $sources | awk -v variants=" $(echo $variants) " '
function folder(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
function stem(path) { sub(/\.[a-z]*$/, "", path); return path }
function is_variant(path) { path = stem(path); sub(/.*\//, "", path); return index(variants, " " path " ") > 0 }
# The folders that a file in `from` may include from; "" for a folder that has no place in the graph.
function allowed(from) {
    api = " harness/api "; base = api "harness/base "; measure = base "harness/measure "
    report = measure "harness/report "; engine = report "harness/tune harness/fleet harness/engine "
    if (from == "harness/api") return api
    if (from == "harness/base") return base
    if (from == "harness/measure") return measure
    if (from == "harness/tune") return base from " "
    if (from == "harness/report") return report
    if (from == "harness/compare" || from == "harness/doctor" || from == "harness/fleet") return report from " "
    if (from == "harness/engine") return engine
    if (from == "harness/program") return engine "harness/compare harness/doctor datasets/model " from " "
    if (from ~ /^kernels\/cuda/) return base "kernels kernels/cuda kernels/cuda/emulation "
    if (from == "kernels/null") return api from " "
    if (from == "kernels/avx512") return base "kernels kernels/c kernels/avx2 " from " "
    if (from == "kernels/vectors") return base "kernels kernels/c kernels/avx2 kernels/avx512 kernels/neon kernels/sve " from " "
    if (from ~ /^kernels\/(avx512_ymm|avx512_vpopcntdq|avx512_bf16|amx)$/) return base "kernels kernels/c kernels/avx2 kernels/avx512 kernels/avx512_bf16 " from " "
    if (from ~ /^kernels(\/[^\/]*)?$/) return base "kernels kernels/c " from " "
    if (from == "datasets/model") return base from " "
    if (from == "datasets") return base "datasets/model " from " "
    if (from == "reference" || from == "suites/parts") return base from " "
    if (is_suite(from)) return engine from " "
    if (from ~ /^suites\/[^\/]*$/) return base "suites/parts " from " "
    return ""
}
# A folder of suites/ with a suite.c is a suite, which may use all of harness but the program; others hold variants.
function is_suite(path) { return path ~ /^suites\// && exists(path "/suite.c") }
function exists(path,    line, found) { found = (getline line < path) >= 0; close(path); return found }
{
    split($0, at, ":")
    file = at[1]
    split($0, quoted, "\"")
    target = quoted[2]
    from = folder(file)
    to = folder(target)
    if (target ~ /\.(c|cu)$/) why = "nothing includes a .c"
    else if (to == "") why = "names of headers start from the root"
    else if (!index(allowed(from), " " to " ")) why = from " may not include from " to
    else if (from ~ /^suites\// && from != "suites/parts" && !is_suite(from) && stem(file) != stem(target) && is_variant(target))
        why = "a variant never includes another variant"
    else next
    printf "%s:%s: \"%s\": %s\n", file, at[2], target, why
    bad = 1
}
END { exit bad }' >&2
bad=$?

# A registered implementer's symbol stays in one folder; a variant's, in one file.
for symbol in $(sed -n -E 's/^HA_(SUITE|KERNELS|DEVICE|VARIANT|DEFINITION|DATASET)\(([a-z0-9_]+)\).*/ha_\1_\2/p' harness/program/registry.def |
    sed -E 's/^ha_([A-Z]+)/ha_\L\1/'); do
    # shellcheck disable=SC2086
    users=$(grep -l -w "$symbol" $sources | grep -v -E '^harness/program/registry\.(c|def)$')
    case $symbol in
        ha_variant_*) homes=$users ;;
        *) homes=$(echo "$users" | sed 's|/[^/]*$||' | uniq) ;;
    esac
    case $homes in
        harness*) ;;
        *) [ "$(echo "$homes" | wc -l)" -gt 1 ] || continue ;;
    esac
    echo "$symbol: only the registry and its own place may name it:" $users >&2
    bad=1
done
exit $bad
