#!/bin/bash
# import.sh - tenon import and export as a user meets them: generation, going on to train, tokenizers, any layout of a
# checkpoint. The models beside this file were saved by Hugging Face's library; greedy.txt is what it generates.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
models=$top_srcdir/tests/hf
weights=step-00000000/model-00001-of-00001.safetensors

case_ "what the library generates"
for model in "$models"/*/; do
    name=$(basename "$model")
    run "$TENON" import "$model" "$name"
    expect_rc 0
    expect_out "parameters in [0-9]+ tensors of [1-4] file"
    expect_out "no tokenizer.json"
    for cache in "" --no-cache; do
        # shellcheck disable=SC2086
        run "$TENON" sample "$name" --ids --greedy --prompt "$(cut -d' ' -f1-4 "$model/greedy.txt")" --tokens 12 $cache
        expect_rc 0
        expect test "$out" = "$(cat "$model/greedy.txt")"
    done
done
run "$TENON" sample gpt2 --prompt "a"
expect_rc 2
expect_err 'no tokenizer.json.*--ids'
run "$TENON" sample gpt2 --ids --prompt "1 2 43"
expect_rc 2
expect_err 'no token 43, only 0 to 42'
run "$TENON" sample gpt2 --ids --prompt "1 two"
expect_rc 2
expect_err '"two" does not begin with one'

case_ "export gives the weights back"
for name in gpt2 gpt2-wide llama-tied; do
    run "$TENON" export $name $name-there --shard-size 0.005
    expect_rc 0
    expect_out "of $name/step-00000000, .* in [3-9] files of $name-there"
    expect test -e $name-there/model.safetensors.index.json
    run "$TENON" import $name-there $name-again
    expect_rc 0
    expect_same $name/$weights $name-again/$weights
done
run "$TENON" export gpt2 gpt2-there
expect_rc 2
expect_err 'gpt2-there is there already'
expect test -z "$(ls -d ./*.tmp-* 2>/dev/null)"
run "$TENON" export nowhere x
expect_rc 2
expect_err 'there is no run directory nowhere'
run "$TENON" import gpt2-there gpt2
expect_rc 2
expect_err 'gpt2 has checkpoints already'

make_tiny
case_ "going on to train"
run "$TENON" train gpt2/import.ini data.dir=data train.steps=4 train.global_batch=4 train.eval_interval=0 optimizer.name=adamw
expect_rc 0
expect_out 'going on from gpt2/step-00000000'
expect_out 'there are weights alone: adamw begins anew'
run "$TENON" train gpt2/import.ini data.dir=data train.steps=6 train.global_batch=4 train.eval_interval=0 optimizer.name=adamw
expect_rc 0
expect_out 'going on from gpt2/step-00000004'
expect_not_out 'begins anew'
expect test "$("$TENON" sample gpt2 --prompt "Line" --tokens 5 --greedy | wc -c)" = 10
run "$TENON" train tiny.ini checkpoint.dir=gpt2-wide
expect_rc 2
expect_err 'checkpoint of another model: .*model.n_embd is 12 there, 16 here'

case_ "a tokenizer comes along"
run "$TENON" import "$models/gpt2" words --tokenizer data/tokenizer.json
expect_rc 0
expect_out 'with its tokenizer'
run "$TENON" sample words --prompt "Line 1" --tokens 8 --greedy
expect_rc 0
text=$out
run "$TENON" export words words-there
expect_out 'with tokenizer.json'
run "$TENON" import words-there words-again
run "$TENON" sample words-again --prompt "Line 1" --tokens 8 --greedy
expect test "$out" = "$text"
for ((i = 0; i < 60; i++)); do printf "\\x$(printf %x $((65 + i)))"; done >many.txt
run "$TENON" prepare --input many.txt --out many --tokenizer char
run "$TENON" import "$models/gpt2" too-many --tokenizer many/tokenizer.json
expect_rc 2
expect_err 'many/tokenizer.json has 60 tokens, the model only 43'
expect test ! -e too-many
cp -r "$models/gpt2" odd-words
echo '{"version": "1.0", "model": {"type": "Unigram", "vocab": []}}' >odd-words/tokenizer.json
run "$TENON" import odd-words odd
expect_rc 0
expect_out 'note: its tokenizer does not come along: '

# Parts of tensors on two ranks, whole ones on one: the same files come out.
case_ "any layout of a checkpoint"
train whole train.steps=4
run "$TENON" export whole whole-there
expect_rc 0
expect_out 'parameters'
ranks 2 "$TENON" train tiny.ini checkpoint.dir=parts train.steps=4 parallel.zero=3 train.micro_batch=2
expect_rc 0
expect test -e parts/step-00000004/model-00002-of-00002.safetensors
run "$TENON" export parts parts-there
expect_rc 0
ranks 2 "$TENON" train tiny.ini checkpoint.dir=gathered train.steps=4 parallel.zero=3 train.micro_batch=2 checkpoint.gather=yes
run "$TENON" export gathered gathered-there
expect_same parts-there/model.safetensors gathered-there/model.safetensors
expect_same parts-there/config.json whole-there/config.json

case_ "a model without biases has zeros there"
train plain train.steps=2 model.bias=no
run "$TENON" export plain plain-there
expect_rc 0
expect_out 'note: 13 biases that this model does without are zeros there'
run "$TENON" import plain-there plain-again --tokenizer data/tokenizer.json
expect_rc 0
run "$TENON" sample plain --prompt "Line 1" --tokens 10 --greedy
text=$out
run "$TENON" sample plain-again --prompt "Line 1" --tokens 10 --greedy
expect test "$out" = "$text"

case_ "half the size"
run "$TENON" export gpt2 gpt2-low --dtype bf16
expect_rc 0
expect_file gpt2-low/config.json '"torch_dtype": "bfloat16"'
run "$TENON" export gpt2 gpt2-odd --dtype int8
expect_rc 2
