#!/bin/bash
# trace.sh - the trace of an update: a file of each rank that adds up, the line about it, and the same curve as without.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"
make_tiny
traced=$top_builddir/tests/parallel/traced

train()
{
    "$TENON" train tiny.ini backend.threads=1 train.steps=3 model.n_embd=64 model.block_size=32 "$@"
}
export -f train

# looked FILE...: what the checker says of them is in out.
looked() { run "$traced" "$@"; }

case_ "without"
run bash -c 'train checkpoint.dir=without'
expect_rc 0
expect_not_out trace
expect_no_file without/trace-rank-0.json

case_ "one process: no collective, and the same curve"
run bash -c 'train checkpoint.dir=alone train.trace=2'
expect_rc 0
expect_out '^trace of update 2, rank 0 computed longest: [0-9.e-]+ s, of them compute [0-9.e-]+ s$'
expect cmp <(losses without) <(losses alone)
expect test "$(losses alone | wc -l)" = 3
looked alone/trace-rank-0.json
expect_rc 0
expect_out '^rank 0: [1-9][0-9]+ launches, 0 collectives, 0 waits$'

line='^trace of update 2, rank [0-9] computed longest: .* communication [0-9.e-]+ s, exposed [0-9.e-]+ s \(waits [0-9.e-]+ s\); at most [0-9.]+ % of communication is hidden$'

case_ "two replicas"
ranks 2 bash -c 'train checkpoint.dir=two train.trace=2 train.micro_batch=2'
expect_rc 0
expect_out "$line"
expect test "$(grep -c '^trace of' <<<"$out")" = 1
expect test -z "$(cat rank.1.out)"
looked two/trace-rank-0.json two/trace-rank-1.json
expect_rc 0
expect_out '^rank 1: [1-9][0-9]+ launches, [1-9][0-9]* collectives, [1-9][0-9]* waits$'
expect grep -q '"rank 1: dp 1"' two/trace-rank-1.json

# A rank that is not let run has nothing to overlap with: turns that take longer than a slice of the scheduler, and some tries.
case_ "two stages: what is under way at once, and nothing arrives before it was sent"
for try in 1 2 3 4 5; do
    ranks 2 bash -c "train checkpoint.dir=line$try train.trace=2 train.micro_batch=2 parallel.pp=2 model.n_layer=4 model.n_embd=256 model.block_size=128"
    expect_rc 0
    expect_out "$line"
    looked --pipeline line$try/trace-rank-0.json line$try/trace-rank-1.json
    expect_rc 0
    grep -q overlap <<<"$out" && break
done
expect_out '^forward 1 on rank 0 and forward 0 on rank 1 overlap$'

case_ "two stages of two replicas: each collective is waited for"
ranks 4 bash -c 'train checkpoint.dir=both train.trace=2 train.micro_batch=1 parallel.pp=2 parallel.dp=2'
expect_rc 0
looked both/trace-rank-{0,1,2,3}.json
expect_rc 0

case_ "an update that does not come"
run bash -c 'train checkpoint.dir=never train.trace=4'
expect_rc 2
expect_err 'train\.trace.*: there is no such update: train\.steps = 3'
run bash -c 'train checkpoint.dir=alone train.trace=2 train.steps=4'
expect_rc 0
expect_out '^train\.trace = 2: that update is over, none is traced$'

case_ "a file that cannot be written is a warning"
mkdir -p blocked/trace-rank-0.json
run bash -c 'train checkpoint.dir=blocked train.trace=2'
expect_rc 0
expect_err 'warning: the trace of update 2 is lost: .*trace-rank-0\.json'
