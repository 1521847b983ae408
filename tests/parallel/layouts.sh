#!/bin/bash
# layouts.sh - a checkpoint that one number of ranks wrote is read by any other: the run goes on as if nothing had been,
# losses, parameters and moments; to the bit where the layout is the same.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"
same=$top_builddir/tests/parallel/same
make_tiny

# go N RUN STEPS ARGUMENT...: must succeed.
go()
{
    local n=$1 run=$2 steps=$3

    shift 3
    ranks "$n" "$TENON" train tiny.ini backend.threads=1 backend.comm=gloo model.bias=no train.global_batch=12 \
        train.micro_batch=$((12 / n)) checkpoint.interval=4 "checkpoint.dir=$run" train.steps="$steps" "$@"
    expect_rc 0
}

# as_alone RUN: the losses of all updates, and the tensors after the last.
as_alone()
{
    local step=step-00000008 kind

    expect near_losses "$1/metrics.jsonl"
    for kind in model optimizer; do
        expect "$same" 1e-5 alone/$step/$kind-00001-of-00001.safetensors "$1/$step/$kind-00001-of-00001.safetensors"
    done
}

near_losses()
{
    paste <(losses alone) <(losses "${1%/*}") | awk '
        NF != 4 || $1 != $3 { print "steps differ: " $0; bad = 1 }
        { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) { print "step " $1 ": " $2 " and " $4; bad = 1 } }
        END { exit bad || NR != 8 }'
}

# files RUN KIND N: this many files of a kind, each of them numbered N.
files()
{
    [ "$(ls "$1"/step-00000004/"$2"-*.safetensors | wc -l)" = "$3" ] &&
        [ -e "$1/step-00000004/$2-$(printf '%05d-of-%05d' "$3" "$3").safetensors" ]
}

case_ "alone"
go 1 alone 8
expect files alone model 1

case_ "saved on four, gone on with on one, two, three"
go 4 four 4 parallel.zero=3
expect files four model 4
expect files four optimizer 4
expect_no_file four/step-00000004/model.safetensors.index.json
cp -r four two; cp -r four three
go 1 four 8
as_alone four
go 2 two 8 parallel.tp=2 train.micro_batch=12 checkpoint.gather=yes
as_alone two
go 3 three 8 parallel.zero=2 checkpoint.gather=yes
as_alone three

case_ "saved on one, gone on with on four"
cp -r alone one; rm -r one/step-00000008
go 4 one 8 parallel.zero=3 checkpoint.gather=yes
as_alone one

case_ "parameters in chunks, then replicas, then moments in chunks"
go 3 chain 2 parallel.zero=3 checkpoint.interval=2
go 2 chain 4 checkpoint.interval=2
expect files chain model 1              # rank 0 owns what all have
expect_file chain/step-00000004/model.safetensors.index.json
go 4 chain 6 checkpoint.interval=2 parallel.zero=1
go 4 chain 8 checkpoint.gather=yes
as_alone chain

case_ "chunks of divided tensors, zig-zag, other strategies"
go 4 grid 4 parallel.tp=2 train.micro_batch=6 parallel.zero=3
go 2 grid 8 parallel.cp=2 train.micro_batch=12 checkpoint.gather=yes
as_alone grid

case_ "the same layout goes on to the bit"
go 3 whole 8 parallel.zero=3
go 3 cut 4 parallel.zero=3
go 3 cut 8 parallel.zero=3
for file in $(cd whole/step-00000008 && ls ./*.safetensors); do expect_same "whole/step-00000008/$file" "cut/step-00000008/$file"; done
expect [ "$(ls whole/step-00000008/*.safetensors | wc -l)" = 6 ]

case_ "text is made from parts"
run "$TENON" sample whole --tokens 20 --greedy
expect_rc 0
sampled=$out
go 1 whole 9
run "$TENON" sample whole --step 8 --tokens 20 --greedy
expect [ "$out" = "$sampled" ]

case_ "a part that is not there"
rm -f cut/step-00000008/model-00002-of-00003.safetensors
run "$TENON" train tiny.ini backend.threads=1 model.bias=no train.global_batch=12 checkpoint.dir=cut train.steps=8 checkpoint.resume=8
expect_rc 2
expect_err 'cut has no complete checkpoint of step 8; there are: 4'

case_ "experts: one file tensor each, whoever holds them"
rm -r alone
sed -i 's/^dropout.*/arch = mixtral\nn_inner = 24\nn_expert = 5/' tiny.ini
go 1 alone 8
go 3 spread 4 parallel.ep=3 parallel.zero=1
cp -r spread apart; cp -r spread solo
go 2 spread 8 parallel.ep=2 parallel.zero=3 checkpoint.gather=yes
as_alone spread
go 4 apart 8 parallel.ep=2 parallel.tp=2 train.micro_batch=6 checkpoint.gather=yes
as_alone apart
go 1 solo 8
as_alone solo
expect grep -q 'model.layers.1.block_sparse_moe.experts.4.w2.weight' solo/step-00000008/model-00001-of-00001.safetensors
sed -i 's/^arch = mixtral/dropout = 0/; /^n_inner/d; /^n_expert/d' tiny.ini

case_ "grouped queries: groups cut where there are more ranks than key heads"
sed -i 's/^dropout.*/arch = llama\nn_kv_head = 1\nn_inner = 24/; s/^n_head.*/n_head = 4/' tiny.ini
rm -r alone
go 1 alone 8
go 4 groups 4 parallel.tp=4 train.micro_batch=12 parallel.sp=yes
cp -r groups chunks
go 2 groups 8 parallel.pp=2 train.micro_batch=6 checkpoint.gather=yes
as_alone groups
go 3 chunks 8 parallel.zero=3 checkpoint.gather=yes
as_alone chunks
