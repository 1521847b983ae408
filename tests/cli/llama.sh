#!/bin/bash
# llama.sh - model.arch = llama through the commands: trained, stopped and gone on with, sampled, planned, measured; configurations
# that make no model, and keys that it has no use for. tests/cli/step.sh and tests/parallel have its numbers.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
sed -i 's/^dropout.*/arch = llama\nn_kv_head = 1\nn_inner = 24/' tiny.ini

case_ "12 updates in one go, and in three"
train whole train.steps=12
for steps in 5 7 12; do
    train parts train.steps=$steps
done
expect_out 'going on from parts/step-00000007'
same_checkpoint whole parts 12
expect grep -q 'model.layers.1.self_attn.k_proj.weight' whole/step-00000012/model-00001-of-00001.safetensors
expect grep -q 'lm_head.weight' whole/step-00000012/model-00001-of-00001.safetensors

case_ "it learns"
train long train.steps=30
expect awk -v a="$(metric long 1 loss)" -v b="$(metric long 30 loss)" 'BEGIN { exit !(b < 0.8 * a) }'
run "$TENON" sample long --tokens 20 --prompt "Line " --greedy
expect_rc 0
expect_out '^Line '

case_ "low precision is near, and recomputing changes no bit"
for dtype in bf16 fp16; do
    train $dtype backend.dtype=$dtype train.steps=12
    expect near "$(metric whole 12 loss)" "$(metric $dtype 12 loss)" 0.02
    expect test "$(losses whole)" != "$(losses $dtype)"
done
train again train.steps=12 train.recompute=yes
same_checkpoint again whole 12

case_ "another architecture, another model"
run "$TENON" train tiny.ini checkpoint.dir=whole model.n_kv_head=2
expect_rc 2
expect_err 'model\.n_kv_head is 1 there, 2 here'
run "$TENON" train tiny.ini checkpoint.dir=whole model.rope_theta=500
expect_rc 2
expect_err 'model\.rope_theta is 10000 there, 500 here'
expect_no_file whole/step-00000013

case_ "what it costs"
run "$TENON" plan "$top_srcdir/examples/llama-1b.ini" --world 8 parallel.zero=3 backend.dtype=bf16 --memory 80G
expect_rc 0
expect_out '^parameters +1235814400, 1235814400 without positions$'
run "$TENON" plan tiny.ini --kernels
expect_rc 0
expect_out ' rope  +rope +cpu '
expect_out ' norm +rmsnorm +cpu '
expect_out ' norm +rms_dw +cpu '
expect_not_out ' ref '
run "$TENON" bench tiny.ini --steps 2 --warmup 1
expect_rc 0
expect_out '^model +llama: 2 layers'

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

refused 'model\.n_kv_head = 3 does not divide model\.n_head = 4' model.n_head=4 model.n_kv_head=3
refused 'the width of a head, is odd' model.n_head=16
refused 'model\.n_embd = 16: each head needs the same width|model\.n_head = 3 does not divide' model.n_head=3
refused 'model\.bias = yes: it is a key of other architectures and of no use to llama' model.bias=yes
refused 'model\.gelu = tanh: .* no use to llama' model.gelu=tanh
refused 'model\.dropout = 0\.1: .* no use to llama' model.dropout=0.1
refused 'model\.n_expert = 4: .* no use to llama' model.n_expert=4
refused 'model\.rope_theta = 500: .* no use to gpt2' model.arch=gpt2 model.n_kv_head=2 model.rope_theta=500
refused 'model\.n_kv_head = 1: gpt2 has as many' model.arch=gpt2
refused 'model\.rope_factor = 4: model\.rope_scaling = none has no use for it' model.rope_factor=4
refused 'model\.rope_original_context = 64: model\.rope_scaling = linear has no use' model.rope_scaling=linear model.rope_original_context=64
refused 'model\.rope_high_freq_factor = 1: it must be more than model\.rope_low_freq_factor = 1' model.rope_scaling=llama3 model.rope_high_freq_factor=1
