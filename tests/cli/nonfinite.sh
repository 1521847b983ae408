#!/bin/bash
# nonfinite.sh - a loss that is no number any more: where it came from is said, and what was good stays.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
train run train.steps=4 checkpoint.interval=2
cp -r run before

# A rate at which the weights leave the range of fp32 in an update or two.
wild="optimizer.lr=1e6 schedule.name=constant schedule.warmup=0 train.grad_clip=0 optimizer.weight_decay=1"

case_ "by default the run stops"
# shellcheck disable=SC2086
run "$TENON" train tiny.ini checkpoint.dir=run $wild checkpoint.interval=20
expect_rc 1
expect_err 'step [0-9]+: loss .*(nan|inf).*, gradient norm .*'
expect_err 'the first tensor that is not finite is .*'
expect_err 'the last checkpoint is run/step-00000004$'
expect_err_lines
same_checkpoint run before 4
expect test "$(ls -d run/step-* | wc -l)" = 2

case_ "without a checkpoint"
# shellcheck disable=SC2086
run "$TENON" train tiny.ini checkpoint.dir=new $wild
expect_rc 1
expect_err 'there is no checkpoint yet$'
expect test -z "$(ls -d new/step-* 2>/dev/null)"

case_ "skip leaves the update out and says so"
# shellcheck disable=SC2086
run "$TENON" train tiny.ini checkpoint.dir=skip $wild train.nonfinite=skip train.steps=20
expect_rc 0
expect_err 'warning: step [0-9]+ is skipped: loss '
expect grep -q '"loss":null.*"skipped":true' skip/metrics.jsonl
expect_file skip/step-00000020/state.json

case_ "ignore goes on"
# shellcheck disable=SC2086
run "$TENON" train tiny.ini checkpoint.dir=ignore $wild train.nonfinite=ignore train.steps=20
expect_rc 0
expect_err_lines 0
expect_file ignore/step-00000020/state.json

case_ "what was ignored is found when text is made of it"
for way in --greedy "--temperature 1"; do
    # shellcheck disable=SC2086
    run "$TENON" sample ignore --prompt Line --tokens 3 $way
    expect_rc 1
    expect_err 'non-finite logits at position 4$'
    expect_err_lines
done
