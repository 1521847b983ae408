#!/bin/bash
# sample.sh - text from a run: what is asked for, how much of it, and always the same for the same seed.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
train run train.steps=40 schedule.steps=40 checkpoint.interval=20 checkpoint.keep=0

model=step-00000040/model-00001-of-00001.safetensors

sample()
{
    run "$TENON" sample run "$@"
}

# characters of stdout, without the newline at the end
length()
{
    printf '%s' "$out" | wc -m
}

case_ "a prompt and what follows"
sample --prompt "Line 1" --tokens 20 --greedy
expect_rc 0
expect_out '^Line 1'
expect test "$(tr '\n' _ <<<"$out" | head -c 26 | wc -m)" = 26
expect_err_lines 0
first=$out

case_ "temperature 0, top-k 1 and top-p 0 are greedy"
for way in "--temperature 0" "--temperature 1e-9" "--top-k 1" "--top-p 0"; do
    # shellcheck disable=SC2086
    sample --prompt "Line 1" --tokens 20 $way
    expect test "$out" = "$first"
done

case_ "greedy does not depend on the seed, drawing does"
sample --prompt "Line 1" --tokens 20 --greedy --seed 7
expect test "$out" = "$first"
sample --prompt "Line 1" --tokens 40 --temperature 2 --seed 7
seven=$out
sample --prompt "Line 1" --tokens 40 --temperature 2 --seed 7
expect test "$out" = "$seven"
sample --prompt "Line 1" --tokens 40 --temperature 2 --seed 8
expect test "$out" != "$seven"

# The block is 16 tokens: what lies further back does not matter.
case_ "the window slides"
sample --prompt "0123456789Line 12 of 12: all" --tokens 30 --greedy
expect_rc 0
expect_out '^0123456789Line 12 of 12: all'
slid=${out#0123456789Line 12 of 12: all}
sample --prompt "9876543210Line 12 of 12: all" --tokens 30 --greedy
expect test "${out#9876543210Line 12 of 12: all}" = "$slid"
sample --prompt "Line 1" --tokens 5 --greedy
short=$out
sample --prompt "Line 1" --tokens 60 --greedy
expect test "${out:0:${#short}}" = "$short"

# The window is 16 tokens; the first ones fill it, the last one slides it.
case_ "caches change nothing"
for prompt in L "Line 1" "Line 12 of 123:" "0123456789Line 12 of 12: all"; do
    for tokens in 1 10 11 40; do
        for way in "--chunk 1" "--chunk 4" "backend.kernels=ref"; do
            # shellcheck disable=SC2046
            sample --prompt "$prompt" --tokens $tokens --greedy --no-cache $([ "${way#--}" = "$way" ] && echo "$way")
            whole=$out
            # shellcheck disable=SC2086
            sample --prompt "$prompt" --tokens $tokens --greedy $way
            expect_rc 0
            expect test "$out" = "$whole"
        done
    done
done
sample --prompt "Line 1" --tokens 40 --seed 5 --no-cache backend.dtype=bf16
whole=$out
sample --prompt "Line 1" --tokens 40 --seed 5 backend.dtype=bf16
expect test "$out" = "$whole"

case_ "several texts at once, each as with a seed of its own"
for cache in "" --no-cache; do
    # shellcheck disable=SC2086
    sample --prompt "Line 1" --tokens 30 --seed 7 --samples 3 $cache
    expect_rc 0
    together=$out
    sample --prompt "Line 1" --tokens 30 --seed 7
    apart=$out
    for seed in 8 9; do
        sample --prompt "Line 1" --tokens 30 --seed $seed
        apart=$apart$'\n---------------\n'$out
    done
    expect test "$together" = "$apart"
done
sample --prompt "Line 1" --tokens 30 --samples 0
expect_rc 2

case_ "how long it took"
sample --prompt "Line 1" --tokens 30 --greedy --stats
expect test "$out" != ""
expect_err '^6 tokens of prompt and the first one: [0-9.]+ s; 29 further ones, 1 text: [0-9.]+ s, [0-9.]+ tokens/s$'
sample --prompt "Line 1" --tokens 30 --greedy --stats --no-cache --samples 2
expect_err '29 further ones, 2 texts: .*tokens/s \(no caches\)$'

# A model that has learned the alphabet by heart says it from any letter on, past the end of its window too.
case_ "what was learned comes back"
for ((i = 0; i < 80; i++)); do printf 'abcdefghijklmnopqrstuvwxyz'; done >abc.txt
"$TENON" prepare --input abc.txt --out abc --tokenizer char >/dev/null 2>&1
train alphabet data.dir=abc model.dropout=0 train.steps=120 schedule.steps=120
run "$TENON" sample alphabet --prompt "xyzab" --tokens 41 --greedy
expect test "$out" = "xyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopq"
run "$TENON" sample alphabet --prompt "q" --tokens 1 --greedy
expect test "$out" = qr

case_ "no prompt, no tokens"
sample --tokens 10
expect_rc 0
sample --prompt "" --tokens 10
expect_rc 0
sample --prompt "Line" --tokens 0
expect_rc 0
expect test "$out" = Line

case_ "a prompt from a file"
printf 'Line 1' >prompt.txt
sample --prompt-file prompt.txt --tokens 20 --greedy
expect test "$out" = "$first"
sample --prompt-file prompt.txt --prompt x
expect_rc 2
expect_err 'both'

case_ "a checkpoint of one's choice"
sample --prompt "Line 1" --tokens 40 --greedy --step 20
expect_rc 0
twenty=$out
run "$TENON" sample run/step-00000020 --prompt "Line 1" --tokens 40 --greedy
expect_rc 0
expect test "$out" = "$twenty"
sample --step 30
expect_rc 2
expect_err 'no complete checkpoint of step 30; there are: 20, 40'

case_ "the run directory is enough"
mv run moved
mv data hidden
run "$TENON" sample moved --prompt "Line 1" --tokens 20 --greedy
expect test "$out" = "$first"
mv moved run
mv hidden data

case_ "a prompt outside the vocabulary"
sample --prompt "Line #1"
expect_rc 2
expect_err "character 6 is U\+0023 '#'"
expect_err_lines
expect test -z "$out"
sample --prompt $'Line \xff'
expect_rc 2
expect_err 'UTF-8'

case_ "other mistakes"
run "$TENON" sample nowhere
expect_rc 2
expect_err 'nowhere'
run "$TENON" sample data
expect_rc 2
expect_err 'data has no complete checkpoint'
sample --temperature -1
expect_rc 2
expect_err 'temperature'
sample --top-p 1.5
expect_rc 2
sample model.n_layer=3
expect_rc 2
expect_err 'model\.n_layer=3'
sample backend.threads=1 --prompt "Line 1" --tokens 20 --greedy
expect_rc 0
cp -r run damaged
printf X | dd of=damaged/$model bs=1 seek=4000 conv=notrunc 2>/dev/null
run "$TENON" sample damaged --tokens 5
expect_rc 2
expect_err 'is damaged'

# NaN into the last weight, and the checksum that goes with it.
case_ "weights that are no numbers"
cp -r run nan
printf '\0\0\300\177' |
    dd of=nan/$model bs=1 conv=notrunc seek=$(($(stat -c %s nan/$model) - 4)) 2>/dev/null
if command -v xxhsum >/dev/null; then
    hash=$(xxhsum -H64 nan/$model | cut -d' ' -f1)
    old=$(sed -n '/"model-0/,/}/s/.*"xxh64": "\([0-9a-f]*\)".*/\1/p' nan/step-00000040/state.json)
    sed -i "s/$old/$hash/" nan/step-00000040/state.json
    run "$TENON" sample nan --prompt "Line 1" --tokens 5
    expect_rc 1
    expect_err 'non-finite logits at position 6'
fi

case_ "characters of several bytes come whole"
for i in $(seq 60); do echo "größe über Äpfel $i €uro 漢字 😀"; done >wide.txt
"$TENON" prepare --input wide.txt --out wide --tokenizer byte >/dev/null 2>&1
train bytes data.dir=wide train.steps=10
run "$TENON" sample bytes --prompt "größe" --tokens 300 --temperature 1.5
expect_rc 0
expect_out '^größe'
