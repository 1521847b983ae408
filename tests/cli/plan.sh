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

# Without biases, with positions: v x e + 1024 x e + n (12 e^2 + 2 e) + e
case_ "GPT-2's sizes"
for model in 124m:50257:768:12 350m:50257:1024:24 774m:50257:1280:36 1558m:50257:1600:48; do
    IFS=: read -r name v e n <<<"$model"
    run "$TENON" plan "$top_srcdir/examples/gpt2-$name.ini" model.vocab_size=$v train.micro_batch=1 train.global_batch=1 --memory 100G
    expect_rc 0
    expect_out "^parameters +$((v * e + 1024 * e + n * (12 * e * e + 2 * e) + e)), "
done

case_ "every launch"
plan --kernels backend.kernels=ref
expect_rc 0
expect_out '^forward +block0 +attn_qkv +einsum +ref '
expect_out '^update .* ref '
expect_out '^launches +([0-9]+) +ref \1;'

case_ "memory by launch"
plan --memory-timeline
expect_rc 0
expect_out '^ +[0-9]+ +[0-9.]+ +[0-9.]+ +#+ +forward block0 mlp_fc '
# the highest of the launches is the peak, and the last one so far
peak=$(sed -n 's/^at most \([0-9.]*\) MB alive, in launch [0-9]*: .*; the arena has [0-9.]* MB$/\1/p' <<<"$out")
expect test -n "$peak"
expect test "$(awk '$1 ~ /^[0-9]+$/ && $2 ~ /\./ && $2 > m { m = $2 } END { print m }' <<<"$out")" = "$peak"
expect test "$(awk '$1 ~ /^[0-9]+$/ && $2 ~ /\./ { m = $3 } END { print m }' <<<"$out")" = "$peak"

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

# state PARAMETERS_MB OPTIMIZER GRADIENTS STATE ARGUMENT...: of each of two ranks, for a million parameters in fp32
million="model.vocab_size=319 model.block_size=64 model.n_layer=8 model.n_head=4 model.n_embd=100 model.bias=no train.global_batch=8"
state()
{
    local parameters=$1 optimizer=$2 gradients=$3 all=$4

    shift 4
    case_ "the state of a million parameters: $*"
    run "$TENON" plan $million optimizer.name=adamw "$@"
    expect_rc 0
    expect_out '^parameters +1000000,'
    expect_out "^ +2 +$parameters MB +$optimizer MB +$gradients MB +$all MB .* 0-1$"
}
state 4\\.00 8\\.00 4\\.00 16\\.00 parallel.dp=2
state 4\\.00 4\\.00 4\\.00 12\\.00 --world 2 parallel.zero=1
state 4\\.00 4\\.00 2\\.00 10\\.00 --world 2 parallel.zero=2
state 2\\.00 4\\.00 2\\.00 8\\.00 --world 2 parallel.zero=3 train.micro_batch=1

case_ "groups, and bytes on the wire"
small="model.vocab_size=32 model.block_size=8 model.n_layer=2 model.n_head=2 model.n_embd=16 backend.comm=self"
run "$TENON" plan $small parallel.tp=2 train.global_batch=2
expect_rc 0
expect_out '^ranks +2: tp 2$'
expect_out '^groups of tp +\[0 1\]$'
# the output of a row-parallel layer, 2 x 8 x 16 in fp32: 1024 bytes in each of two blocks
expect_out '^all_reduce +tp +2 attn_out +forward +fp32 +256 +2 +2048$'
expect_out '^all_reduce +tp +2 mlp_out +forward +fp32 +256 +2 +2048$'
expect_out '^FLOPs by formula .*, of all ranks$'
run "$TENON" plan $small parallel.tp=2 parallel.cp=2 --world 8 train.global_batch=4
expect_rc 0
expect_out '^ranks +8: dp 2 cp 2 tp 2$'
expect_out '^groups of dp +\[0 4\] \[1 5\] \[2 6\] \[3 7\]$'
expect_out '^groups of cp +\[0 2\] \[1 3\] \[4 6\] \[5 7\]$'
expect_out '^groups of tp +\[0 1\] \[2 3\] \[4 5\] \[6 7\]$'
# gradients are summed over dp, in two buckets: (2 - 1) / 2 of twice the bytes of what a rank has
expect_out '^all_reduce +dp +2 grad_reduce +backward +fp32 +3376 +1 +13504$'
expect_out '^all_reduce +dp +2 grad_reduce +backward +fp32 +416 +1 +1664$'
run "$TENON" plan "$top_srcdir/examples/gpt2-124m.ini" model.vocab_size=50257 --world 1024 parallel.tp=8 train.micro_batch=1 train.global_batch=128
expect_rc 0
expect_out '^ +512 .* 1-3 9-11 .*\.\.\.$|^ +384 .* 1-3 9-11 .*\.\.\.$'
run "$TENON" plan $small --world 4 parallel.tp=3
expect_rc 2
expect_err_lines
expect_err 'tp 3 = 3 does not divide the 4 ranks'

case_ "what cannot fit"
run "$TENON" plan "$top_srcdir/examples/gpt2-124m.ini" train.micro_batch=1 train.global_batch=1 --memory 2G
expect_rc 1
expect_err_lines
expect_err 'plan: a rank needs 2\.[0-9]+ GB, and a device has 2\.00 GB: .*train\.recompute = yes'
expect_out '^memory +2\.00 GB +of a device, as --memory says; a rank needs 2\.[0-9]+ GB$'
run "$TENON" plan "$top_srcdir/examples/gpt2-124m.ini" train.micro_batch=1 train.global_batch=4 --world 4 parallel.zero=3 --memory 2G
expect_rc 0
expect_out 'a rank needs 1\.[0-9]+ GB, all 4 ranks [0-9.]+ GB$'
plan --memory 1Q
expect_rc 2
expect_err '--memory 1Q: expected a size such as 80G'

case_ "how long it takes: 6ND, roofline, and what 80 GB hold"
run "$TENON" plan $small --world 1024 train.global_batch=1024 train.micro_batch=1 --parameters 70G --tokens 15T --peak 989.5T --mfu 0.5
expect_rc 0
expect_out '^peak +989\.5 +TFLOP/s of each rank, fp32, dense, as --peak says$'
expect_out '^training +72\.0 days .* at MFU 1: 6ND, 7e\+10 parameters, 1\.5e\+13 tokens, 1\.013e\+06 TFLOP/s$'
expect_out '^ +143\.9 days .* at MFU 0\.5$'
run "$TENON" plan $small train.global_batch=1 --parameters 1G --tokens 10G --peak 100T --bandwidth 1T --mfu 0.4 --memory 80G
expect_rc 0
expect_out '^ridge +100 +FLOP/B: .* 1 TB/s as --bandwidth says$'
expect_out ' 1\.5e\+06 s at MFU 0\.4$'
expect_out '^room for +5e\+09 +parameters at 16 B each'
run "$TENON" plan $million --world 8 parallel.zero=3 --memory 80G
expect_rc 0
expect_out '^room for +4e\+10 +parameters at 16 B each'
run "$TENON" plan $million --world 8 --memory 80G
expect_out '^room for +5e\+09 +parameters at 128 B each'
# two updates of 8 x 64 tokens; 6 x 1e6 of them a token, without the 64 x 100 positions
run "$TENON" plan $million train.steps=2 --peak 1G
expect_out '^training .* 6\.105 s at MFU 1: 6ND, 9\.936e\+05 parameters, 1024 tokens, 0\.001 TFLOP/s$'
expect_not_out '^ridge'
plan --mfu 0.4
expect_rc 2
expect_err_lines
expect_err 'plan: the device that is here does not say its peak'
plan --peak fast
expect_rc 2
expect_err '--peak fast: expected an amount such as 989\.5T'

case_ "sizes that cannot be counted name their keys"
run "$TENON" plan model.vocab_size=65 model.block_size=16777216 model.n_embd=1048576 model.n_head=1 train.global_batch=16777216
expect_rc 2
expect_err_lines
expect_err 'train\.micro_batch.*: train\.micro_batch x train\.seq_len x model\.n_inner is 1\.18e\+21 elements'
run "$TENON" plan $small plugins.tp=foo train.global_batch=2
expect_rc 0
expect_err_lines
expect_err 'warning: command line: plugins\.tp = foo is not used: the axis has one rank'
