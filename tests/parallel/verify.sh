#!/bin/bash
# verify.sh - what is equal to one process passes, and what is broken on purpose is found and named: by tenon verify, and
# while training by backend.debug.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"
model="model.n_layer=2 model.n_head=4 model.n_embd=32 model.block_size=16 train.global_batch=12 backend.comm=gloo backend.threads=1"
model="$model model.vocab_size=64"

# equal ARGUMENT...: verify starts the ranks and finds no difference
equal()
{
    case_ "equal: $*"
    run "$TENON" verify $model "$@"
    expect_rc 0
    expect_out '^equal: .*; worst is (gradient|parameter|norm|loss)'
    expect_out '^replicas are equal to the bit$'
    expect_not_out 'too much'
}

equal parallel.tp=2
expect_out '^equal: 2 ranks \(tp 2\) and one process'
expect_out '^gradient   transformer\.wte\.weight '
expect_out '^parameter  transformer\.h\.1\.mlp\.c_proj\.bias '
expect_out '^norm       step 2 '
equal --ranks 3 model.vocab_size=65 parallel.zero=3 model.dropout=0.3 train.micro_batch=2 --worst 3 --steps 3 backend.debug=yes
expect_out '^equal: 3 ranks \(dp 3\)'
expect [ "$(grep -c '^gradient\|^parameter\|^loss\|^norm' <<<"$out")" = 3 ]
equal parallel.dp=2 parallel.tp=2 parallel.sp=yes optimizer.name=sgd backend.debug=yes
equal parallel.cp=2 parallel.zigzag=yes backend.debug=yes --seed 7
equal parallel.dp=2 backend.dtype=bf16
equal parallel.pp=2 train.micro_batch=3 backend.debug=yes
equal parallel.pp=2 parallel.dp=2 parallel.zero=3 train.micro_batch=3 model.dropout=0.3 model.n_layer=4 parallel.schedule=interleaved backend.debug=yes
equal parallel.tp=4 parallel.sp=yes model.arch=llama model.n_kv_head=2 backend.debug=yes
equal --ranks 3 model.arch=llama model.n_kv_head=1 model.n_layer=3 model.tie_embeddings=yes parallel.pp=3 train.micro_batch=3 backend.debug=yes
equal parallel.cp=2 parallel.dp=2 model.arch=llama model.n_kv_head=4 parallel.zero=3 backend.debug=yes

case_ "under a launcher"
ranks 2 "$TENON" verify $model parallel.tp=2 --worst 1
expect_rc 0; expect_out '^equal: 2 ranks \(tp 2\)'
expect [ ! -s rank.1.out ]
ranks 1 "$TENON" verify $model
expect_rc 2; expect_err 'there is one rank, so there is nothing to compare'

case_ "mistakes"
run "$TENON" verify $model
expect_rc 2; expect_err_lines; expect_err 'which ranks shall be compared'
run "$TENON" verify $model parallel.tp=2 train.micro_batch=5
expect_rc 2; expect_err 'train\.micro_batch = 5: 5 sequences'
run "$TENON" verify $model parallel.tp=2 --tolerance 2
expect_rc 2; expect_err_lines; expect_err '--tolerance 2'

broken=("plugins.path=$top_builddir/tests/parallel/broken.so" plugins.passes=broken)

# found PATTERN ARGUMENT...: verify says it, with the worst tensor and how far it is out
found()
{
    local pattern=$1

    shift
    case_ "broken: $*"
    run "$TENON" verify $model --worst 5 "${broken[@]}" "$@"
    expect_rc 1
    expect_err "$pattern"
    expect_out 'too much$'
}

equal "${broken[@]}" parallel.dp=2 parallel.broken=0
found 'verify: 2 ranks \(dp 2\) are not one process: [0-9]+ of 60 differ .*worst is gradient transformer\.[a-z0-9_.]+, element [0-9]+: .* in parallel, .* alone, [0-9.]+e\+0[3-9] times' \
    parallel.dp=2 parallel.broken=1
expect_out '^replicas differ: of 84 tensors [0-9]+ are not the same on all ranks of dp; the first is transformer\.wte\.weight'
found 'worst is norm step [12]: .*e\+05 times' parallel.dp=2 parallel.broken=2
expect_out '^replicas are equal'        # all ranks are wrong alike
found '4 ranks \(dp 2, tp 2\) are not one process: .*e\+0[3-9] times' parallel.dp=2 parallel.tp=2 parallel.broken=3
found '2 ranks \(tp 2\) .*worst is gradient transformer\..*e\+0[3-9] times' parallel.tp=2 parallel.broken=4
found '2 ranks \(cp 2\) .*worst is gradient transformer\.h\..*attn\.c_attn.*e\+0[3-9] times' parallel.cp=2 parallel.broken=6
found 'worst is norm step [12]: .*e\+05 times' parallel.pp=2 train.micro_batch=3 parallel.broken=2
found '2 ranks \(pp 2\) .*worst is gradient transformer\.wte\.weight, .*e\+0[3-9] times' parallel.pp=2 train.micro_batch=3 parallel.broken=7
expect_out '^replicas differ: of 84 tensors [0-9]+ are not the same on all ranks of pp; the first is transformer\.wte\.weight'

case_ "a rank that leaves out a collective, in debug mode"
run "$TENON" verify $model "${broken[@]}" --ranks 2 parallel.broken=5 backend.debug=yes
expect_rc 1
expect_err 'the ranks of dp are not in the same collective: rank 0 is at all_reduce on dp \(unit [a-z0-9]+, role grad_reduce\), number 2: all_reduce of [0-9]+ elements of fp32; rank 1 is at .*number 2: all_reduce'

case_ "replicas that drift apart, in debug mode"
ranks 3 "$TENON" bench $model "${broken[@]}" parallel.broken=1 backend.debug=yes --steps 1 --warmup 1 --no-rates
expect_rc 1
expect_err 'replicas differ: of 84 tensors 84 are not the same on all ranks of dp; the first is transformer\.wte\.weight, with checksum [0-9a-f]{16} on rank 0 and [0-9a-f]{16} on rank 1'

case_ "bench of several ranks: rank 0 prints, what is of one rank and what of all is said"
ranks 2 "$TENON" bench $model --steps 3 --warmup 1
expect_rc 0
expect [ ! -s rank.1.out ]
expect_out '^default tenon ranks 2 threads 1: step '
expect_out '^step +median of 3: .*, of the slowest rank$'
expect_out '^model FLOPs .*, of all ranks$'
expect_out 'rates are those of rank 0 while all 2 measure; the step is [0-9.]+ GFLOP/s a rank'
