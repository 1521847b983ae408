#!/bin/bash
# train-resume.sh - a run that is stopped and goes on ends with the same bits as one that is not; how the
# batch is cut and whether anybody watches changes nothing either.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny

case_ "30 updates in one go"
train whole
expect_out 'no checkpoint in whole, starting fresh'
expect_out '^step 30/30 .*loss'
expect_file whole/step-00000030/state.json
expect_file whole/step-00000030/tokenizer.json
expect test "$(losses whole | wc -l)" = 30

case_ "20 and 10"
train twice train.steps=20
train twice
expect_out 'going on from twice/step-00000020'
same_checkpoint whole twice 30
expect test "$(losses whole)" = "$(losses twice)"

case_ "10 and 10 and 10"
train thrice train.steps=10
train thrice train.steps=20
train thrice
same_checkpoint whole thrice 30
expect test "$(losses whole)" = "$(losses thrice)"

case_ "a finished run"
run "$TENON" train tiny.ini checkpoint.dir=thrice
expect_rc 0
expect_out 'nothing is left to do'
same_checkpoint whole thrice 30

case_ "shuffled epochs, stopped inside one"
train shuffled data.order=shuffle train.steps=30
train parts data.order=shuffle train.steps=13
train parts data.order=shuffle train.steps=30
same_checkpoint shuffled parts 30
expect test "$(losses shuffled)" != "$(losses whole)"

case_ "with validation and checkpoints every 2 updates"
train watched train.eval_interval=2 checkpoint.interval=2 checkpoint.keep=2
same_checkpoint whole watched 30
expect test "$(losses whole)" = "$(losses watched)"
expect test -n "$(metric watched 0 val_loss)"
expect test -n "$(metric watched 30 val_loss)"
expect test -z "$(metric watched 29 val_loss)"
expect test "$(ls -d watched/step-* | xargs)" = "watched/step-00000028 watched/step-00000030"
expect_out '^step 0/30  validation loss'
expect test "$(grep -c '^saved watched/step-00000030$' <<<"$out")" = 1

# The sums run in another order, so it is the same to rounding, and rounding grows with the updates.
case_ "accumulation 1x8, 2x4, 4x2, 8x1"
for micro in 1 2 4 8; do
    train "micro$micro" train.micro_batch=$micro train.steps=5 train.eval_interval=5
    for key in loss grad_norm; do
        expect near "$(metric micro1 1 $key)" "$(metric "micro$micro" 1 $key)" 2e-6
        expect near "$(metric micro1 5 $key)" "$(metric "micro$micro" 5 $key)" 1e-3
    done
    expect near "$(metric micro1 0 val_loss)" "$(metric "micro$micro" 0 val_loss)" 2e-6
done

case_ "a batch that does not divide"
run "$TENON" train tiny.ini checkpoint.dir=odd train.micro_batch=3
expect_rc 2
expect_err 'train\.micro_batch = 3'
expect_no_file odd

case_ "the seed of the run, not of the process"
train other train.seed=1
expect test "$(losses other)" != "$(losses whole)"

case_ "metrics and progress are told apart"
expect_not_out '"loss"'
fields='"loss":[^,]*,"lr":[^,]*,"grad_norm":[^,]*,"tokens_per_second":[^,]*'
expect grep -q "^{\"step\":1,\"tokens\":128,$fields}$" other/metrics.jsonl
