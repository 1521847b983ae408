#!/bin/bash
# mixtral.sh - model.arch = mixtral through the commands: trained, stopped and gone on with, sampled, planned, measured; configurations
# that make no mixture. tests/cli/step.sh and tests/parallel have its numbers.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
sed -i 's/^dropout.*/arch = mixtral\nn_inner = 12\nn_expert = 5\ntop_k = 2/' tiny.ini

case_ "12 updates in one go, and in three"
train whole train.steps=12
for steps in 5 7 12; do
    train parts train.steps=$steps
done
expect_out 'going on from parts/step-00000007'
same_checkpoint whole parts 12
for part in gate experts.0.w1 experts.4.w2 experts.3.w3; do
    expect grep -q "model.layers.1.block_sparse_moe.$part.weight" whole/step-00000012/model-00001-of-00001.safetensors
done
expect grep -q 'experts.4.w2.weight:v' whole/step-00000012/optimizer-00001-of-00001.safetensors

case_ "it learns"
train long train.steps=30
expect awk -v a="$(metric long 1 loss)" -v b="$(metric long 30 loss)" 'BEGIN { exit !(b < 0.8 * a) }'
run "$TENON" sample long --tokens 20 --prompt "Line " --greedy
expect_rc 0
expect_out '^Line '

case_ "low precision is near, and recomputing changes no bit"
for dtype in bf16 fp16; do
    train $dtype backend.dtype=$dtype train.steps=12
    expect near "$(metric whole 12 loss)" "$(metric $dtype 12 loss)" 0.05
    expect test "$(losses whole)" != "$(losses $dtype)"
done
train again train.steps=12 train.recompute=yes
same_checkpoint again whole 12

case_ "one expert for all is no mixture, and all for each is one"
train single train.steps=2 model.n_expert=1 model.top_k=1
train all train.steps=2 model.n_expert=3 model.top_k=3

case_ "another number of experts, another model"
run "$TENON" train tiny.ini checkpoint.dir=whole model.n_expert=4
expect_rc 2
expect_err 'model\.n_expert is 5 there, 4 here'
run "$TENON" train tiny.ini checkpoint.dir=whole model.top_k=1
expect_rc 2
expect_err 'model\.top_k is 2 there, 1 here'
expect_no_file whole/step-00000013

case_ "what it costs: of eight experts two"
run "$TENON" plan "$top_srcdir/examples/mixtral-8x7b.ini" --world 64 parallel.ep=8 parallel.zero=3 backend.dtype=bf16 --memory 80G
expect_rc 0
expect_out '^parameters +46702792704, 46571720704 without embeddings$'
expect_out '^met by a token +12879925248, 12748853248 without embeddings: 2 of 8 experts$'
expect_out '^exchange +ep +8 mlp_in +forward +bf16 '
run "$TENON" plan tiny.ini --kernels
expect_rc 0
expect_out ' mlp_fc +grouped +cpu '
expect_out ' expert_out +grouped_dw +cpu '
expect_not_out ' ref '
run "$TENON" bench tiny.ini --steps 2 --warmup 1
expect_rc 0
expect_out '^model +mixtral: 2 layers'

# refused MESSAGE SETTING...
refused()
{
    local message=$1

    shift
    case_ "refused: $*"
    run "$TENON" train tiny.ini checkpoint.dir=none "$@"
    expect_rc 2
    expect_err "$message"
    expect_no_file none
}

refused 'model\.top_k = 6 of model\.n_expert = 5 experts: a token can see as many as there are' model.top_k=6
refused 'model\.n_expert = 0' model.n_expert=0
refused 'model\.dropout = 0\.1: .* no use to mixtral' model.dropout=0.1
refused 'parallel\.ep = 2: it must divide dp = 1' parallel.ep=2
