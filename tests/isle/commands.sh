#!/bin/bash
# commands.sh - every command on a device that the host cannot reach: what it does there is what it does on the CPU.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
. "$top_srcdir/tests/support/runs.sh"
isle=$top_builddir/tests/isle/isle.so
[ -e "$isle" ] || skip "make check builds $isle"
on="plugins.path=$isle backend.device=isle"
make_tiny

# as_on_cpu A B TOLERANCE: the losses of two runs, update by update.
as_on_cpu()
{
    expect [ "$(losses "$1" | wc -l)" = "$(losses "$2" | wc -l)" ]
    expect awk -v t="$3" '{ d = $2 - $4; if (d < 0) d = -d; if (d > t * $4) { print; bad = 1 } } END { exit bad || NR < 20 }' \
        <(paste -d ' ' <(losses "$1") <(losses "$2"))
}

case_ "the loss of a character model"
train cpu backend.device=cpu train.steps=200 schedule.steps=200 train.eval_interval=100
train isle $on train.steps=200 schedule.steps=200 train.eval_interval=100
expect_out '^device isle \(isle 0\), kernels isle,'
as_on_cpu isle cpu 2e-4
expect near "$(metric isle 200 val_loss)" "$(metric cpu 200 val_loss)" 2e-4
expect near "$(metric isle 200 val_loss)" 1.1 0.1

case_ "stopped twice and gone on with, to the bit; then on the other device"
train parts $on train.steps=7
train parts $on train.steps=11
train parts $on train.steps=30
train whole $on
same_checkpoint parts whole 30
train parts backend.device=cpu train.steps=40
expect_out 'going on from parts/step-00000030'
train parts $on train.steps=45
expect_out 'going on from parts/step-00000040'

case_ "sample, with its cache of keys and values"
run "$TENON" sample cpu --tokens 60 --seed 3 backend.device=cpu
cpu=$out
run "$TENON" sample isle --tokens 60 --seed 3 $on
expect_rc 0
expect [ "$out" = "$cpu" ]
expect [ ${#out} -gt 40 ]

case_ "a loss that is not finite names a tensor that is not"
run "$TENON" train tiny.ini $on checkpoint.dir=bad optimizer.lr=1e6 schedule.name=constant schedule.warmup=0 schedule.min_lr=0 train.grad_clip=0
expect_rc 1
expect_err 'step [0-9]+: loss .*the first tensor that is not finite is the (output|gradient|parameter)'
expect_not_err 'is the output of expr .*role attention.* = -inf'

case_ "plan"
run "$TENON" plan tiny.ini $on
expect_rc 0
expect_out 'isle [0-9]+; of [0-9]+ nodes'
expect_out '^memory +17\.18 GB +of the device that is here'

case_ "a run that does not fit"
run "$TENON" train tiny.ini $on checkpoint.dir=large model.n_embd=65536 model.n_head=2 model.n_layer=8
expect_rc 1
expect_err_lines
expect_err 'isle: no room for [0-9]+ bytes'
expect_no_file large

case_ "bench, with every launch"
run "$TENON" bench tiny.ini $on --steps 3 --ops
expect_rc 0
expect_out 'kernels isle'
expect_out 'einsum'
expect_out '^memory rate +[0-9]'

case_ "trace"
train traced $on train.steps=3 train.trace=2
expect_out 'trace of update 2'

[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || exit 0
both="$on backend.comm=gloo backend.threads=1"

case_ "verify"
run "$TENON" verify tiny.ini $both parallel.tp=2 --ranks 2
expect_rc 0
expect_out '^equal: 2 ranks \(tp 2\) and one process'

case_ "probe"
run "$TENON" probe tiny.ini $both --ranks 2 --sizes 4K --repeat 2 --warmup 1
expect_rc 0
expect_out 'through memory of the host, since gloo does not take that of the device isle'
expect_out '^  all_reduce +\[3 3\] of fp32 fp64 bf16 fp16 int32 int64 uint8$'

case_ "zero 3, then a pipeline, then alone"
ranks 2 "$TENON" train tiny.ini $both checkpoint.dir=many parallel.zero=3 train.steps=10
expect_rc 0
ranks 2 "$TENON" train tiny.ini $both checkpoint.dir=many parallel.pp=2 train.steps=20 train.trace=12
expect_rc 0
train many $on
as_on_cpu many whole 1e-5

case_ "bench on two"
ranks 2 "$TENON" bench tiny.ini $both parallel.zero=2 --steps 3 --no-rates
expect_rc 0
expect_out 'ranks 2'
