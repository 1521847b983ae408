#!/bin/bash
# precision.sh - runs in bf16 and fp16: stopped and gone on with they end with the same bits, the scale of the loss with
# them; what they save is fp32; and blocks that are computed again change nothing.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny

for dtype in bf16 fp16; do
    case_ "$dtype: 12 updates in one go, and in three"
    train "$dtype" backend.dtype=$dtype train.steps=12
    for steps in 5 7 12; do
        train "$dtype-parts" backend.dtype=$dtype train.steps=$steps
    done
    expect_out "going on from $dtype-parts/step-00000007"
    same_checkpoint $dtype $dtype-parts 12
    expect test "$(losses $dtype)" = "$(losses $dtype-parts)"
    expect test "$(losses $dtype | wc -l)" = 12
    expect grep -q '"dtype":"F32"' $dtype/step-00000012/model-00001-of-00001.safetensors
    expect test -z "$(grep -ao '"dtype":"B\?F16"' $dtype/step-00000012/*.safetensors)"
    run "$TENON" sample $dtype --tokens 20 --prompt "Line "
    expect_rc 0
done

case_ "the scale of the loss is saved where there is one"
expect grep -q '"loss_scale": 65536.0' fp16/step-00000012/state.json
expect grep -q '"loss_scale_good": 12' fp16/step-00000012/state.json
expect test -z "$(grep loss_scale bf16/step-00000012/state.json)"

case_ "near the curve of fp32, and not it"
train fp32 train.steps=12
for dtype in bf16 fp16; do
    expect near "$(metric fp32 12 loss)" "$(metric $dtype 12 loss)" 0.02
    expect test "$(losses fp32)" != "$(losses $dtype)"
done

case_ "an overflow is told, halves the scale and costs an update"
train over backend.dtype=fp16 train.steps=2
sed -i 's/"loss_scale": 65536.0/"loss_scale": 1099511627776.0/' over/step-00000002/state.json
train over backend.dtype=fp16 train.steps=30
expect_out 'step 3 is skipped: the gradients overflow fp16 at loss scale 1\.09951e\+12, which is halved'
expect_err_lines 0
expect grep -q '"step":3,.*"grad_norm":null.*"skipped":true' over/metrics.jsonl
expect test -n "$(metric over 30 grad_norm)"
expect test -z "$(grep '"step":30,.*skipped' over/metrics.jsonl)"

case_ "a scale that nobody can have saved"
train odd backend.dtype=fp16 train.steps=2
sed -i 's/"loss_scale": 65536.0/"loss_scale": 3.5/' odd/step-00000002/state.json
run "$TENON" train tiny.ini checkpoint.dir=odd backend.dtype=fp16
expect_rc 2
expect_err '3.5, unchanged for 2 updates, is no scale of the loss'
sed -i 's/"loss_scale": 3.5/"loss_scale": "much"/' odd/step-00000002/state.json
run "$TENON" train tiny.ini checkpoint.dir=odd backend.dtype=fp16 checkpoint.resume=2
expect_rc 2
expect_err '"loss_scale" or "loss_scale_good" is no proper number'

case_ "going on in another dtype says so"
train fp32 train.steps=14 backend.dtype=bf16
expect_out 'changed since then: .*backend.dtype fp32 -> bf16'

case_ "recomputing changes no bit"
train again train.steps=12 train.recompute=yes
train fp32-12 train.steps=12
same_checkpoint again fp32-12 12
run "$TENON" plan tiny.ini train.recompute=yes --dump-after recompute
expect_rc 0
expect_out '^backward block1:'
expect_out ' = layernorm\(.*role=norm'
