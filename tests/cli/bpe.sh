#!/bin/bash
# bpe.sh - byte pair encoding from the text to the sample: learned, prepared, trained on, generated from, taken over
# by other texts; and what is refused.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
for i in $(seq 400); do echo "größe über Äpfel $i €uro 漢字 😀, it's what he'd say"; done >wide.txt

case_ "learned from the text"
run "$TENON" prepare --input wide.txt --out b --tokenizer bpe --vocab-size 300
if grep -q 'built without PCRE2' <<<"$err"; then
    expect_rc 2
    expect_err_lines 1
    expect_err 'apt-get install libpcre2-dev'
    expect_no_file b
    mkdir bpe && echo '{"model": {"type": "BPE", "vocab": {}, "merges": []}}' >bpe/tokenizer.json
    run "$TENON" prepare --input wide.txt --out b --tokenizer gpt2 --bpe-dir bpe
    expect_rc 2
    expect_no_file b
    exit
fi
expect_rc 0
expect_out '^b: 300 symbols \(bpe\), [0-9]+ training and [0-9]+ validation tokens$'
expect [ "$(ls -A b | tr '\n' ' ')" = "meta.json tokenizer.json train.bin val.bin " ]
expect grep -q '"tokenizer": "bpe", "vocab_size": 300, "dtype": "uint16"' b/meta.json
expect test "$(wc -c <b/train.bin)" -lt 18000                   # 20 000 bytes of text, a third of the characters
expect grep -q '"model": {"type": "BPE"' b/tokenizer.json

case_ "the same again, and otherwise"
run "$TENON" prepare --input wide.txt --out b --tokenizer bpe --vocab-size 300
expect_rc 0
expect_out '^b is already prepared: 300 symbols'
run "$TENON" prepare --input wide.txt --out b --tokenizer bpe --vocab-size 290
expect_rc 2
expect_err '--force'

case_ "a vocabulary that is ready"
run "$TENON" prepare --input wide.txt --out c --tokenizer bpe --bpe-dir b
expect_rc 0
for f in meta.json tokenizer.json train.bin val.bin; do
    expect_same b/$f c/$f
done
run "$TENON" prepare --input text.txt --out d --tokenizer bpe --bpe-dir b --end-of-text
expect_rc 2
expect_err 'has no token <\|endoftext\|>'
expect_no_file d

case_ "any file at all"
head -c 5000 "$TENON" >any.bin
run "$TENON" prepare --input any.bin --out any --tokenizer bpe --bpe-dir b
expect_rc 0

case_ "trained on and generated from; the checkpoint alone suffices"
train run data.dir=b train.steps=10
run "$TENON" prepare --input text.txt --out other --tokenizer bpe --vocab-size 300
run "$TENON" train tiny.ini data.dir=other checkpoint.dir=run train.steps=20
expect_rc 2
expect_err 'another tokenizer'
expect_same b/tokenizer.json run/step-00000010/tokenizer.json
rm -r b c
for seed in 1 2 3; do
    run "$TENON" sample run --prompt "größe 漢 <|endoftext|> ☃" --tokens 100 --temperature 2 --seed $seed
    expect_rc 0
    expect_out '^größe 漢 <\|endoftext\|> ☃'
done

# arguments, what the message must have; nothing may be there afterwards
refused()
{
    local words=$1
    shift
    case_ "prepare $*"
    run "$TENON" prepare --input wide.txt --out new "$@"
    expect_rc 2
    expect_err_lines 1
    expect_err "$words"
    expect_no_file new
}
mkdir odd cut
echo '{"a": 0}' >odd/encoder.json
echo 'a b' >odd/vocab.bpe
head -c 900 run/step-00000010/tokenizer.json >cut/tokenizer.json
refused 'needs --vocab-size N' --tokenizer bpe
refused 'vocab-size.*255' --tokenizer bpe --vocab-size 255
refused 'vocab-size can be [0-9]+ at most' --tokenizer bpe --vocab-size 100000
refused '--vocab-size is for --tokenizer bpe' --tokenizer char --vocab-size 300
refused 'give one of them' --tokenizer bpe --vocab-size 300 --bpe-dir run/step-00000010
refused '--bpe-dir is for' --bpe-dir run/step-00000010
refused '--end-of-text is for' --end-of-text
refused 'needs --bpe-dir DIR, .*encoder\.json.*openaipublic.*196139668be6.*1ce1664773c5.*huggingface' --tokenizer gpt2
refused "is not GPT-2's; --tokenizer bpe takes it" --tokenizer gpt2 --bpe-dir run/step-00000010
refused 'none has no tokenizer\.json' --tokenizer gpt2 --bpe-dir none
refused 'odd/encoder\.json: merge 1, "a" and "b": "b" is not in the vocabulary' --tokenizer bpe --bpe-dir odd
refused 'cut/tokenizer\.json:1: no valid JSON' --tokenizer bpe --bpe-dir cut
