#!/bin/bash
# step.sh - processes that share a step come out as float64 autograd says: gradients, pre-clip norm, updated parameters,
# for every strategy, over the communicator gloo (shared memory within a host, and TCP alone).
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
golden=$top_srcdir/tests/golden
compare=$top_builddir/tests/golden/compare
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"

# passes N CASE ARGUMENT...
passes()
{
    local n=$1 case=$2

    shift 2
    case_ "$case on $n: $*"
    rm -f out.safetensors
    ranks "$n" "$TENON" step --case "$golden/$case.safetensors" --out out.safetensors backend.threads=1 backend.comm=gloo "$@"
    expect_rc 0
    run "$compare" "$golden/$case.safetensors" out.safetensors
    expect_rc 0
}

passes 2 bias train.micro_batch=1
passes 2 bias train.micro_batch=2 parallel.zero=1
passes 2 bias train.micro_batch=1 parallel.zero=2
passes 2 sgd train.micro_batch=1 parallel.zero=3
passes 3 odd train.micro_batch=1 parallel.zero=1
passes 3 odd train.micro_batch=1 parallel.zero=3 backend.kernels=ref
passes 2 bias parallel.tp=2
passes 3 odd parallel.tp=3 parallel.sp=yes
passes 2 nobias parallel.tp=2 parallel.sp=yes
passes 2 nobias parallel.cp=2
passes 3 odd parallel.cp=3 parallel.zigzag=no
passes 3 odd parallel.cp=3 parallel.ring=no
passes 3 odd train.micro_batch=1 parallel.sync_every=yes parallel.bucket=0.01
passes 4 bias train.micro_batch=1 parallel.zero=3 parallel.shard_within=2
passes 4 sgd parallel.cp=2 train.micro_batch=2 parallel.zero=2
passes 4 bias parallel.tp=2 parallel.sp=yes train.micro_batch=1 parallel.zero=3
passes 2 bias parallel.pp=2
passes 2 bias parallel.pp=2 train.micro_batch=1
passes 2 nobias parallel.pp=2 train.micro_batch=1 parallel.schedule=afab
passes 2 odd parallel.pp=2 parallel.stages=0,2 train.micro_batch=1
passes 3 odd parallel.pp=3 train.micro_batch=3
passes 4 sgd parallel.pp=4 train.micro_batch=1
passes 2 bias parallel.pp=2 parallel.schedule=interleaved
passes 4 bias parallel.pp=2 parallel.tp=2 parallel.sp=yes train.micro_batch=1 backend.kernels=ref
passes 4 bias parallel.pp=2 train.micro_batch=1 parallel.zero=3
passes 4 nobias parallel.pp=2 parallel.cp=2 train.micro_batch=1
passes 8 bias parallel.tp=2 parallel.pp=2 train.micro_batch=1
passes 8 sgd parallel.cp=2 parallel.pp=2 train.micro_batch=1 parallel.zero=1
# More ranks of tp than key heads, and heads that do not divide.
passes 2 llama_gqa parallel.tp=2 parallel.sp=yes
passes 4 llama_gqa parallel.tp=4 parallel.sp=yes
passes 3 llama_mqa parallel.tp=3
passes 2 llama_mha parallel.tp=2
passes 2 llama_gqa parallel.cp=2
passes 3 llama_mqa parallel.cp=3 parallel.zigzag=no
passes 2 llama_mha parallel.cp=2 parallel.ring=no
passes 3 llama_mqa train.micro_batch=1 parallel.zero=3
passes 2 llama_gqa train.micro_batch=1 parallel.zero=2
passes 3 llama_mha parallel.pp=3 train.micro_batch=1
passes 2 llama_mqa parallel.pp=2 train.micro_batch=1 parallel.schedule=afab
passes 2 llama_gqa parallel.pp=2 parallel.schedule=interleaved
passes 8 llama_gqa parallel.pp=2 parallel.tp=2 parallel.cp=2 parallel.sp=yes train.micro_batch=1
passes 4 llama_gqa parallel.pp=2 train.micro_batch=1 parallel.zero=1

# One parameter watched, in parts: the same norms, and a gradient that is cleared. Numbers of one process, rounded.
watched()
{
    sed -n '/in step 0/,/^cleared/p' <<<"$out" | awk '$1 == "before" || $1 == "after" || $1 == "cleared" {
        line = ""
        for (i = NF - 4; i <= NF; i++)
            line = line " " ($i == "-" ? "-" : sprintf("%.4g", $i))
        print line }'
}

weight=transformer.h.1.attn.c_attn.weight
case_ "watched by one"
ranks 1 "$TENON" step --case "$golden/bias.safetensors" --out out.safetensors --observe $weight --steps 1
alone=$(watched)
expect test "$(wc -l <<<"$alone")" = 5
for layout in parallel.tp=2 parallel.pp=2 "parallel.zero=3 train.micro_batch=1"; do
    case_ "watched by two, $layout"
    ranks 2 "$TENON" step --case "$golden/bias.safetensors" --out out.safetensors --observe $weight --steps 1 $layout
    expect_rc 0
    expect test "$(watched)" = "$alone"
done

# Experts: whole, cut inside, and spread over ranks, uneven numbers of them; some that nobody visits.
passes 2 mixtral train.micro_batch=1
passes 2 mixtral train.micro_batch=2 parallel.zero=1
passes 3 mixtral_one train.micro_batch=1 parallel.zero=3
passes 2 mixtral parallel.tp=2
passes 2 mixtral parallel.tp=2 parallel.sp=yes
passes 3 mixtral parallel.cp=3
passes 2 mixtral parallel.pp=2 train.micro_batch=1
passes 2 mixtral train.micro_batch=1 parallel.ep=2 backend.debug=yes
passes 2 mixtral train.micro_batch=2 parallel.ep=2 parallel.zero=2
passes 3 mixtral_one train.micro_batch=1 parallel.ep=3
passes 3 mixtral_one train.micro_batch=1 parallel.ep=3 parallel.zero=3 backend.kernels=ref
passes 4 mixtral train.micro_batch=1 parallel.ep=2 parallel.zero=3
passes 4 mixtral train.micro_batch=1 parallel.ep=2 parallel.tp=2
passes 4 mixtral train.micro_batch=2 parallel.ep=2 parallel.tp=2 parallel.sp=yes train.recompute=yes
passes 4 mixtral train.micro_batch=1 parallel.ep=2 parallel.cp=2
passes 4 mixtral train.micro_batch=1 parallel.ep=2 parallel.pp=2
# What is added for experts that are not visited alike: of each sequence, however batches and sequences are cut.
passes 1 mixtral_even train.micro_batch=1
passes 2 mixtral_even train.micro_batch=1 parallel.ep=2
passes 2 mixtral_even parallel.cp=2
passes 2 mixtral_even parallel.tp=2 parallel.sp=yes
passes 4 mixtral_even parallel.pp=2 train.micro_batch=1 parallel.ep=2
passes 4 mixtral_even train.micro_batch=1 parallel.ep=2 parallel.cp=2 parallel.zero=2
export TENON_SHM=no
passes 2 mixtral train.micro_batch=1 parallel.ep=2
passes 2 sgd train.micro_batch=2
passes 2 sgd parallel.pp=2 train.micro_batch=1

case_ "groups that do not divide dp, and nothing that is sharded"
ranks 2 "$TENON" step --case "$golden/bias.safetensors" --out out2.safetensors parallel.zero=1 parallel.shard_within=3
expect_rc 2
expect_err 'parallel.shard_within = 3: it must divide dp = 2'
ranks 2 "$TENON" step --case "$golden/bias.safetensors" --out out2.safetensors parallel.shard_within=2
expect_rc 2
expect_err 'nothing is sharded: set parallel.zero'

case_ "a mesh that does not fit the processes"
ranks 2 "$TENON" step --case "$golden/bias.safetensors" --out out2.safetensors parallel.tp=3
expect_rc 2
expect_err 'parallel|tp'
expect test ! -e out2.safetensors

case_ "experts that there are not, or too few"
ranks 2 "$TENON" step --case "$golden/bias.safetensors" --out out2.safetensors train.micro_batch=1 parallel.ep=2
expect_rc 2
expect_err 'parallel\.ep = 2: the model has 0 experts to share; model\.arch = mixtral has some'
ranks 6 "$TENON" step --case "$golden/mixtral.safetensors" --out out2.safetensors train.global_batch=6 train.micro_batch=1 parallel.ep=6
expect_rc 2
expect_err 'the model has 5 experts, and each rank needs one|tokens'
ranks 2 "$TENON" step --case "$golden/mixtral.safetensors" --out out2.safetensors train.micro_batch=1 parallel.ep=2 parallel.zero=1 parallel.shard_within=2
expect_rc 2
expect_err 'the inner part of dp is taken by parallel\.ep = 2'
expect test ! -e out2.safetensors
