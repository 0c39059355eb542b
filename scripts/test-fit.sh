#!/bin/sh
# test-fit.sh PROGRAM: `habench fit` from outside, and cases that read what it wrote. PROGRAM is habench with one variant
# more, `learner` (suites/variants/fake_learner.c).
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
program=$1

# expect CODE TEXT ARG...: the exit code, and TEXT in what it prints; $limit: in blocks of 512 bytes, of files
limit=unlimited
expect()
{
    code=$1 text=$2
    shift 2
    (ulimit -f "$limit" && exec timeout 600 "$program" "$@") > "$dir/out" 2> "$dir/err" < /dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then fail "habench $*: exit code $got, not $code"
    elif ! cat "$dir/out" "$dir/err" | grep -qF -e "$text"; then fail "habench $*: does not say: $text"
    else pass; fi
}
one_line() { holds "habench $1: one line on stderr" test "$(wc -l < "$dir/err")" -eq 1; }

small='layers=1,steps=1,ctx=1900,dataset=trace'
expect 0 'Usage: habench fit' fit --help
expect 64 'which CASE?' fit -o "$dir/a"
expect 64 'which CASE?' fit learner resident -o "$dir/a"
expect 64 'where to? -o FILE' fit learner
expect 64 "unknown option '--seed'" fit learner --seed 3 -o "$dir/a"
expect 64 'smoke: ' fit smoke -o "$dir/a"
one_line 'of many cases'
expect 64 'link: ' fit link -o "$dir/a"
expect 64 'cpu_kernels learns nothing' fit cpu_kernels:kernel=score -o "$dir/a"
expect 64 'fit: hgca learns nothing; those that do: duo fluxion scout clo hcattention pqcache learner' fit hgca -o "$dir/a"
one_line 'of a variant that learns nothing'
expect 64 'trace nosuch: no such file' fit learner:dataset=trace/nosuch -o "$dir/a"
head -c 100000 datasets/traces/english.safetensors > "$dir/cut.safetensors"
expect 20 'cut.safetensors' fit "learner:dataset=trace/$dir/cut.safetensors" -o "$dir/a"
expect 40 'raise ctx to at least' fit learner:ctx=64,steps=1,dataset=trace/english -o "$dir/a"

# places that cannot be written, and a full disk: nothing is left there
expect 40 'no/such: cannot write: No such file or directory' fit "learner:$small/english" -o "$dir/no/such"
one_line 'into no folder'
: > "$dir/taken"
expect 64 'taken: it is there already' fit "learner:$small/english" -o "$dir/taken"
expect 64 'it is a folder; give the name of a file' fit "learner:$small/english" -o "$dir"
ln -s /proc/self/fd/1 "$dir/stdout" # as /dev/stdout
expect 0 '{"__metadata__":{"format":"habench-fit"' fit "learner:$small/english" -o "$dir/stdout"
ln -s behind "$dir/link"
expect 0 'link: 2 tensors' fit "learner:$small/english" -o "$dir/link"
holds 'a link stays, and its file is written' test -h "$dir/link" -a -f "$dir/behind"
limit=4
expect 40 'cannot write: File too large' fit "learner:$small/english" -o "$dir/a"
one_line 'to a full disk'
limit=unlimited
holds 'no half file' test ! -e "$dir/a" -a ! -e "$dir/a.part"

# fit, file, case: by its path, and by its name in datasets/fits
mkdir -p "$dir/datasets/fits"
expect 0 'english.safetensors: 2 tensors, ' fit "learner:$small/english" -o "$dir/datasets/fits/english.safetensors"
holds 'nothing on stderr' test ! -s "$dir/err"
fit=$dir/datasets/fits/english.safetensors
holds 'it says what the text is' grep -q '"text.0":"The Debian Administrator' "$fit"
expect 0 '2 passed, 0 failed' check "learner:$small/english,fit=$fit" "learner:$small/code,fit=$fit" -o "$dir/run"
holds 'the table says whose text it was' grep -q '^learner fit(own text)=english' "$dir/out"
holds 'and whose it was not' grep -q '^learner fit=english' "$dir/out"
holds 'cases.csv says it' grep -q '/english.safetensors","own"' "$dir/run/cases.csv"
here=$(pwd)
case $program in
    /*) ;;
    *) program=$here/$program ;;
esac
cd "$dir" || exit 1
expect 0 '1 passed, 0 failed' check "learner:$small/code,fit=english"
expect 64 'fit englisch: no such file, and no datasets/fits/englisch.safetensors' check "learner:$small/code,fit=englisch"
cd "$here" || exit 1

# those that are shipped: each serves cases of its model, whose texts it has not learnt from, and no others
net=steps=1,ctx=1900
expect 0 '4 passed, 0 failed' check "fluxion:dataset=trace/english,$net,fit=small" "fluxion:dataset=trace/code,$net,fit=small" \
    "fluxion:dataset=trace/deep,$net,fit=deep" "fluxion:dataset=walk,layers=4,$net,fit=walk" -o "$dir/shipped"
holds 'the table marks none as its own text' sh -c "! grep -q 'own text' '$dir/out'"
expect 0 '4 passed, 0 failed' check "hcattention:dataset=trace/english,$net,fit=hcattention_small" \
    "hcattention:dataset=trace/code,$net,fit=hcattention_small_separate,books=separate" "hcattention:dataset=trace/deep,$net,fit=hcattention_deep" \
    "hcattention:dataset=needle,steps=1,ctx=300,fit=hcattention_needle,c=1024" -o "$dir/books"
holds 'nor of the books' sh -c "! grep -q 'own text' '$dir/out'"
expect 64 "was made for model 'habench-llama-4x256', the case has 'habench-llama-10x192'" check \
    "fluxion:dataset=trace/deep,$net,fit=small"
expect 64 "was made for layers '4', the case has '1'" check "fluxion:dataset=walk,layers=1,$net,fit=walk"
expect 64 "tau=0.1', the case has" check "fluxion:dataset=trace/code,$net,tau=0.05,fit=small"

# 64: a fit of something else, of another model too; 20: a damaged one, of its cases alone
expect 64 "was made for params 'share=0.9', the case has 'share=0.5'" check "learner:$small/code,share=0.5,fit=$fit"
expect 64 'fit: resident learns nothing; those that do: duo fluxion scout clo hcattention pqcache learner' check "resident:fit=$fit"
expect 64 "was made for model 'habench-llama-4x256', the case has 'sinks'" check "learner:ctx=64,fit=$fit"
expect 77 'needs a fit, for tensor window' check learner:ctx=64
head -c 700 "$fit" > "$dir/cut"
sed 's/habench-fit/habench-fat/' "$fit" > "$dir/fat"
for file in cut fat taken; do
    expect 20 "1 of 2 cases were not run" check resident:ctx=64,layers=1 "learner:$small/code,fit=$dir/$file"
    holds 'the file is named' grep -q "^not run: 1 x .*/$file: " "$dir/out"
done

# books of codes: learnt from too few keys, of other options and variants, and damaged in one place each
books='dataset=walk,layers=2,steps=1,c=16'
for variant in hcattention pqcache; do
    expect 40 'keys at least, 16 vectors for each centroid, and there are 100: raise ctx, give more texts (batch) or lower c' \
        fit "$variant:dataset=walk,layers=1,steps=1,ctx=100,c=1024" -o "$dir/a"
    one_line 'from too few keys'
    expect 0 '3 tensors, ' fit "$variant:ctx=300,$books" -o "$dir/$variant"
    expect 0 '1 passed, 0 failed' check "$variant:ctx=40,$books,fit=$dir/$variant"
    expect 64 "was made for model 'walk', the case has 'sinks': \`habench fit CASE -o FILE\` makes another" check \
        "$variant:ctx=40,layers=2,c=16,fit=$dir/$variant"
    expect 64 "c=16," check "$variant:ctx=40,dataset=walk,layers=2,c=32,fit=$dir/$variant"
    expect 64 "was made for layers '2', the case has '1': \`habench fit CASE -o FILE\` makes another" check \
        "$variant:ctx=40,dataset=walk,layers=1,c=16,fit=$dir/$variant"
    one_line 'of another model'
done
expect 64 "was made for variant 'pqcache', the case has 'hcattention': \`habench" check "hcattention:ctx=40,$books,fit=$dir/pqcache"
expect 64 "was made for params 'parts=2,c=16" check "pqcache:ctx=40,$books,parts=4,fit=$dir/pqcache"
expect 64 "books=shared" check "hcattention:ctx=40,$books,books=separate,fit=$dir/hcattention"

# damaged CODE TEXT: books/damaged, of the fit of hcattention
damaged()
{
    expect "$1" "$2" check "hcattention:ctx=40,$books,fit=$dir/damaged"
    holds "$2: what to do" grep -qF "$2 (\`habench fit CASE -o FILE\` makes another)" "$dir/out"
}
number() # BYTES: those of the sixth number of the first book
{
    cp "$dir/hcattention" "$dir/damaged"
    # shellcheck disable=SC2059 # the bytes are a format
    printf "$1" | dd of="$dir/damaged" bs=1 seek=$(($(wc -c < "$dir/hcattention") - 1056 + 20)) conv=notrunc 2> "$dir/err"
}
header() { LC_ALL=C sed "1s/$1/$2/" "$dir/hcattention" > "$dir/damaged"; }
number '\000\000\300\177'
damaged 20 'tensor centroids[0][0][0][0][5] is NaN'
number '\000\000\200\377'
damaged 20 'tensor centroids[0][0][0][0][5] is infinite'
header '\[2,2,1,4,16\]' '[2,2,1,8,8 ]'
damaged 40 'tensor centroids has shape [2][2][1][8][8], and [2][2][1][4][16] is wanted'
header '"centroids":{"dtype":"F32"' '"centroids":{"dtype":"I32"'
damaged 40 'tensor centroids is I32, and F32 is wanted'
header '"centroids"' '"centroidz"'
damaged 40 'tensor centroids is missing: it was made by another version of the variant'
header '\[2,2,1,4,16\]' '[2,2,1,4,99]'
damaged 20 "tensor 'centroids': shape and dtype need 6336 bytes, data_offsets hold 1024"
head -c 1500 "$dir/hcattention" > "$dir/damaged"
expect 20 'is the file complete?' check "hcattention:ctx=40,$books,fit=$dir/damaged"

finish
