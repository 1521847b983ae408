#!/bin/bash
# step.sh - updates from given weights come out as float64 autograd says (tests/golden), and a case that
# does not fit its model is refused.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
golden=$top_srcdir/tests/golden
compare=$top_builddir/tests/golden/compare

# step CASE ARGUMENT...: writes out.safetensors.
step()
{
    local case=$1

    shift
    rm -f out.safetensors
    run "$TENON" step --case "$golden/$case.safetensors" --out out.safetensors "$@"
}

# passes CASE ARGUMENT...
passes()
{
    step "$@"
    expect_rc 0
    run "$compare" "$golden/$1.safetensors" out.safetensors
    expect_rc 0
}

for case in bias nobias odd sgd llama_gqa llama_mqa llama_mha mixtral mixtral_one mixtral_even; do
    for kernels in ref ""; do
        case_ "$case with kernels ${kernels:-of the device}"
        passes $case ${kernels:+backend.kernels=$kernels}
        expect_out 'grad +worst'
    done
done

# A level that this CPU lacks is refused with a sentence; one level always runs.
ran=0
for level in v2 v3 v4; do
    TENON_CPU_LEVEL=$level step odd backend.kernels=cpu
    if [ "$rc" != 0 ]; then
        expect_err 'one that this CPU runs'
        continue
    fi
    for threads in 1 2 3; do
        for case in bias nobias odd sgd llama_gqa llama_mqa mixtral; do
            case_ "$case at level $level on $threads threads"
            TENON_CPU_LEVEL=$level passes $case backend.kernels=cpu,ref backend.threads=$threads
        done
    done
    ran=$((ran + 1))
done
expect test "$ran" -gt 0

case_ "micro-batches of other sizes"
passes sgd train.micro_batch=4
passes sgd train.micro_batch=1
expect_not_out '^(loss|gnorm|grad|after)\..*times'

case_ "what it prints"
step odd
expect_out '^step 0  loss 3\.23458[0-9]*  gnorm 1\.42620[0-9]*$'
expect_out '^step 1 '
expect_not_out '^step 2'

case_ "fewer steps than there are"
step bias --steps 1
expect_rc 0
expect_not_out '^step 1'

# The judge is no good if it does not see a difference.
case_ "another rate, decay, clip or activation is seen"
for other in optimizer.lr=1.001e-2 optimizer.weight_decay=0.11 optimizer.beta2=0.951 model.norm_eps=1.5e-5; do
    step bias $other
    expect_rc 0
    run "$compare" "$golden/bias.safetensors" out.safetensors
    expect_rc 1
    expect_out 'after\.'
done
step odd model.gelu=erf
run "$compare" "$golden/odd.safetensors" out.safetensors
expect_rc 1
step sgd train.grad_clip=1.001                # Adam would not see it: it divides the factor out again
run "$compare" "$golden/sgd.safetensors" out.safetensors
expect_rc 1

case_ "a schedule counts from the first step"
step nobias schedule.name=linear schedule.steps=2 optimizer.lr=2e-2 schedule.min_lr=0
expect_rc 0
run "$compare" "$golden/nobias.safetensors" out.safetensors
expect_rc 1
step nobias schedule.warmup=1 schedule.name=linear schedule.steps=2 optimizer.lr=2e-2
expect_rc 0

case_ "a configuration of one's own is stronger than the case's"
cat >own.ini <<'END'
[train]
grad_clip = 0
END
rm -f out.safetensors
run "$TENON" step own.ini --case "$golden/bias.safetensors" --out out.safetensors
expect_rc 0
run "$compare" "$golden/bias.safetensors" out.safetensors
expect_rc 1

# refused PATTERN ARGUMENT...: of tenon step --out new.safetensors; nothing is written.
refused()
{
    local pattern=$1

    shift
    run "$TENON" step --out new.safetensors "$@"
    expect_rc 2
    expect_err_lines
    expect_err "$pattern"
    expect_no_file new.safetensors
    expect test -z "$(ls -A . | grep -v -e out.safetensors -e own.ini -e broken)"
}
bias=$golden/bias.safetensors
rm -f out.safetensors

case_ "cases that do not fit"
refused 'tokens has 4 sequences of 8.*train\.global_batch = 2' \
    --case "$bias" train.global_batch=2 train.micro_batch=2
refused 'id [0-9]+ at element [0-9]+, outside the vocabulary of 20' --case "$bias" model.vocab_size=20
refused 'init\.transformer\.wte\.weight is F32 \[29, 16\], this model has F32 \[30, 16\]' \
    --case "$bias" model.vocab_size=30
refused 'no initial weights init\.transformer\.h\.2\.' --case "$bias" model.n_layer=3
refused 'initial weights of [0-9]+ tensors, this model has [0-9]+' --case "$bias" model.n_layer=1
refused 'initial weights of [0-9]+ tensors, this model has [0-9]+' --case "$bias" model.bias=no
refused 'is of 3 steps, 4 are asked for' --case "$bias" --steps 4
refused 'nothing\.safetensors' --case nothing.safetensors
refused '\-\-case'
refused 'optimizer\.momentum' --case "$bias" optimizer.momentum=0.5
refused 'odd\.tokens' --case "$bias" odd.tokens=1
head -c 5000 "$bias" >broken
refused 'broken' --case broken
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n' >broken
refused 'git-lfs' --case broken

# The table of observe: at its moments the parameter changes once, and the gradient is there after the backward.
observed()
{
    sed -n "/ in step $1\$/,/^cleared/p" <<<"$out" | awk -v norm="${2:-}" '
        function is(a, b) { return a == b || (a - b < 1e-6 * b && b - a < 1e-6 * b) }
        { n = NF == 0 ? 0 : NF; moment = substr($0, 1, 20); sub(/ *$/, "", moment); split(substr($0, 21), x) }
        moment == "before the forward" { first = x[1]; m = x[4]; v = x[5]; good += x[2] == 0 && x[3] == "-" }
        moment == "after the forward"  { good += x[1] == first && x[2] == 0 && x[3] == "-" && x[4] == m && x[5] == v }
        moment == "after the backward" { good += x[1] == first && x[2] == 0 && x[3] > 1e-3 && x[4] == m && x[5] == v; g = x[3] }
        moment == "after the update"   { good += x[1] != first && x[2] > 1e-4 && x[3] == g && x[4] != m && x[5] != v
                                         first = x[1]; m = x[4]; v = x[5] }
        moment == "cleared"            { good += x[1] == first && x[2] == 0 && x[3] == 0 && x[4] == m && x[5] == v }
        END { exit good != 5 || (norm != "" && !is(g, norm)) }'
}

case_ "one parameter watched"
weight=transformer.h.0.mlp.c_fc.weight
step bias
mv out.safetensors plain
step bias --observe $weight
expect_rc 0
expect cmp out.safetensors plain
for i in 0 1 2; do
    expect observed $i
done
gradient=$(awk '/^after the backward/ { print $6; exit }' <<<"$out")
for more in "train.micro_batch=1" "backend.kernels=ref" "backend.dtype=fp16"; do
    step bias --observe $weight --steps 1 $more
    if [ "$more" = backend.dtype=fp16 ]; then
        expect observed 0
    else
        expect observed 0 "$gradient"
    fi
done
rm plain
refused "transformer.h.0.mlp.c_fc.weigh: .* did you mean $weight\$" --case "$bias" --observe transformer.h.0.mlp.c_fc.weigh

case_ "no output"
run "$TENON" step --case "$bias"
expect_rc 2
expect_err '\-\-out'

case_ "an output that cannot be written"
run "$TENON" step --case "$bias" --out nowhere/new.safetensors
expect test $rc != 0
expect_err 'nowhere'
expect_err_lines
