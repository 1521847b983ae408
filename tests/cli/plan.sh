#!/bin/bash
# plan.sh - what a run costs, before it begins: numbers that can be worked out by hand, and the graph as text.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny

plan()
{
    run "$TENON" plan tiny.ini "$@"
}

case_ "the tiny model"
plan
expect_rc 0
# vocabulary 32: 32 x 16 + 16 x 16 + 2 (12 x 16 x 16 + 13 x 16) + 2 x 16
vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' data/meta.json)
parameters=$((vocab * 16 + 16 * 16 + 2 * (12 * 256 + 13 * 16) + 32))
expect_out "^parameters +$parameters, $((parameters - 256)) without positions"
expect_out "vocabulary $vocab,"
expect_out "^optimizer state +$(awk -v n=$parameters 'BEGIN { printf "%.2f", n * 8 / 1000 }') kB"
expect_out "^gradients +$(awk -v n=$parameters 'BEGIN { printf "%.2f", n * 4 / 1000 }') kB"
expect_out '^launches +[0-9]+ '
expect_no_file runs

case_ "GPT-2 124M without data or memory for it"
run "$TENON" plan "$top_srcdir/examples/gpt2-124m.ini" train.micro_batch=1 train.global_batch=1
expect_rc 0
expect_out '^parameters +124[0-9]{6}, '
expect_out '^parameters +49[0-9.]+ MB'

case_ "every launch"
plan --kernels backend.kernels=ref
expect_rc 0
expect_out '^forward +block0 +attn_qkv +einsum +ref '
expect_out '^update .* ref '
expect_out '^launches +([0-9]+) +ref \1;'

case_ "the graph between the passes"
plan --dump-after list
expect_rc 0
expect_out '^model, .*autodiff, .*finish$'
plan --dump-after model
expect_rc 0
expect_out 'attn_qkv'
expect_not_out 'gnorm'
plan --dump-after finish
expect_out 'gnorm'
plan --dump-after all
expect_out '^# after model$'
expect_out '^# after finish$'
plan --dump-after autodif
expect_rc 2
expect_err 'did you mean autodiff'
expect_err_lines

case_ "mistakes"
run "$TENON" plan
expect_rc 2
expect_err 'model\.vocab_size'
plan model.n_head=3
expect_rc 2
expect_err 'model\.n_head = 3'
expect_err_lines
