#!/bin/bash
# train.sh - a run on several processes has the curve of one, and goes on on any other number of them.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"
make_tiny

# losses FILE: "step loss val_loss" of each line.
losses() { sed -n 's/.*"step":\([0-9]*\).*"loss":\([-0-9.e]*\).*/\1 \2/p' "$1"; }

# close_to FILE FILE: the same steps, losses within 1e-5.
close_to()
{
    paste <(losses "$1") <(losses "$2") | awk '
        NF != 4 || $1 != $3 { print "steps differ: " $0; bad = 1 }
        { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2 + 1e-6) { print "step " $1 ": " $2 " and " $4; bad = 1 } }
        END { exit bad || NR < 5 }'
}

train() { "$TENON" train tiny.ini backend.threads=1 train.eval_interval=6 train.steps=18 checkpoint.interval=6 "$@"; }
export -f train
export TENON

case_ "alone"
run bash -c 'train checkpoint.dir=alone'
expect_rc 0

case_ "two processes, gradients and state in chunks"
ranks 2 bash -c 'train checkpoint.dir=two train.micro_batch=2 parallel.zero=2'
expect_rc 0
expect close_to alone/metrics.jsonl two/metrics.jsonl
expect test -z "$(cat rank.1.out)"
expect cmp <(sed -n 's/.*val_loss":\([0-9]*\.[0-9][0-9][0-9][0-9]\).*/\1/p' alone/metrics.jsonl) \
    <(sed -n 's/.*val_loss":\([0-9]*\.[0-9][0-9][0-9][0-9]\).*/\1/p' two/metrics.jsonl)

case_ "two processes, each with a part of every sequence: validation too"
ranks 2 bash -c 'train checkpoint.dir=ring parallel.cp=2'
expect_rc 0
expect close_to alone/metrics.jsonl ring/metrics.jsonl
expect cmp <(sed -n 's/.*val_loss":\([0-9]*\.[0-9][0-9][0-9][0-9]\).*/\1/p' alone/metrics.jsonl) \
    <(sed -n 's/.*val_loss":\([0-9]*\.[0-9][0-9][0-9][0-9]\).*/\1/p' ring/metrics.jsonl)

case_ "on by three kinds: two processes with parameters in chunks, one, two with heads divided"
ranks 2 bash -c 'train checkpoint.dir=mixed train.micro_batch=2 parallel.zero=3 train.steps=6'
expect_rc 0
run bash -c 'train checkpoint.dir=mixed train.steps=12'
expect_rc 0
ranks 2 bash -c 'train checkpoint.dir=mixed parallel.tp=2 train.steps=18'
expect_rc 0
expect close_to alone/metrics.jsonl mixed/metrics.jsonl

case_ "two stages: validation too"
ranks 2 bash -c 'train checkpoint.dir=line parallel.pp=2 train.micro_batch=2'
expect_rc 0
expect close_to alone/metrics.jsonl line/metrics.jsonl
expect cmp <(sed -n 's/.*val_loss":\([0-9]*\.[0-9][0-9][0-9][0-9]\).*/\1/p' alone/metrics.jsonl) \
    <(sed -n 's/.*val_loss":\([0-9]*\.[0-9][0-9][0-9][0-9]\).*/\1/p' line/metrics.jsonl)

case_ "begun with batches, heads and blocks divided; on with heads, with blocks and states, alone"
ranks 8 bash -c 'train checkpoint.dir=begun parallel.dp=2 parallel.tp=2 parallel.pp=2 train.micro_batch=2 train.steps=6 backend.kernels=ref'
expect_rc 0
for on in heads stages one; do
    cp -r begun $on
done
ranks 2 bash -c 'train checkpoint.dir=heads parallel.tp=2'
expect_rc 0
ranks 8 bash -c 'train checkpoint.dir=stages parallel.pp=4 parallel.zero=1 train.micro_batch=1'
expect_rc 0
run bash -c 'train checkpoint.dir=one'
expect_rc 0
for on in heads stages one; do
    expect close_to alone/metrics.jsonl $on/metrics.jsonl
done

case_ "two stages twice as exactly as once"
ranks 2 bash -c 'train checkpoint.dir=twice parallel.pp=2 train.micro_batch=2 train.steps=6'
expect_rc 0
ranks 2 bash -c 'train checkpoint.dir=twice parallel.pp=2 train.micro_batch=2'
expect_rc 0
same_checkpoint line twice 18

# Weights that leave fp32 are seen through the norm, which all ranks share: all stop before the same update, or all skip it.
case_ "a gradient that is no number, on two"
wild="optimizer.lr=1e6 schedule.name=constant schedule.warmup=0 train.grad_clip=0 optimizer.weight_decay=1 train.micro_batch=2 train.eval_interval=0"
export wild
for layout in parallel.zero=1 parallel.tp=2 parallel.pp=2; do
    rm -rf stop skip
    export layout
    ranks 2 bash -c 'train checkpoint.dir=stop $wild $layout'
    expect_rc 1
    expect_err 'step [0-9]+: loss .*, gradient norm .*; the first tensor that is not finite is '
    expect test -z "$(grep -v '^tenon: gloo: rank 1' rank.1.err)"
    ranks 2 bash -c 'train checkpoint.dir=skip $wild $layout train.nonfinite=skip backend.debug=yes'
    expect_rc 0
    expect test "$(grep -c '"skipped":true' skip/metrics.jsonl)" -ge 1
    expect_file skip/step-00000018/state.json
done

case_ "a run directory that rank 0 cannot use ends all"
: >blocked
ranks 2 bash -c 'train checkpoint.dir=blocked/run train.micro_batch=2'
expect test "$rc" -ne 0
expect test -s rank.1.err
