#!/bin/bash
# fake-attention.sh - the real plugin cuda with attention by a fake cuDNN (tests/cuda/fake), in low precision, on one rank
# and on two, recorded and not: every graph finds its tensors in its stream's device, the losses are those of the own
# kernels, and the results have the same bits in whatever order the fake device works.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
fakes=$top_builddir/tests/cuda/fake/.libs
[ -e "$top_builddir/plugins/cuda/.libs/cuda.so" ] || skip "the plugin cuda is not built"
[ -e "$fakes/libcudart.so.13" ] || skip "the fake libraries are not built"
[ -e "$fakes/libcudnn.so.9" ] || skip "the plugin cuda is built without cuDNN"

# goes N SEED DNN FILE CASE ARGUMENT...; leaves $losses
goes()
{
    local n=$1 seed=$2 dnn=$3 file=$4 case=$5 step=()

    shift 5
    case_ "$case on $n, order $seed, TENON_CUDA_DNN=$dnn: $*"
    step=(env "LD_LIBRARY_PATH=$fakes" TENON_FAKE_SUMMARY=1 "TENON_FAKE_SEED=$seed" "TENON_CUDA_DNN=$dnn" "$TENON" step
          --case "$top_srcdir/tests/golden/$case.safetensors" --out "$file" backend.device=cuda "$@")
    if [ "$n" = 1 ]; then run "${step[@]}"; else ranks "$n" "${step[@]}" backend.comm=gloo backend.threads=1; fi
    expect_rc 0
    losses=$(sed -n 's/^step .* loss \([0-9.]*\) .*/\1/p' <<<"$out")
}

# Two lists of losses, one a line.
near()
{
    paste <(echo "$1") <(echo "$2") |
        awk '{ n++; if (NF != 2 || $1 - $2 > 0.01 || $2 - $1 > 0.01) bad = 1 } END { exit bad || n < 2 }'
}

for case in bias sgd; do
    for dtype in bf16 fp16; do
        goes 1 0 0 own.safetensors $case backend.dtype=$dtype
        expect_not_err 'cuDNN was given [1-9]'
        own=$losses
        goes 1 0 1 first.safetensors $case backend.dtype=$dtype
        expect_err 'fake: cuDNN was given [1-9][0-9]* graphs'
        expect_err ' [1-9][0-9]* replays'
        expect near "$own" "$losses"
        goes 1 1 1 second.safetensors $case backend.dtype=$dtype backend.capture=no
        expect_err 'fake: cuDNN was given [1-9][0-9]* graphs'
        expect cmp first.safetensors second.safetensors
    done
    goes 1 2 fast fast.safetensors $case backend.dtype=bf16
    expect_err 'fake: cuDNN was given [1-9][0-9]* graphs'
done

[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || exit
goes 1 0 0 own.safetensors bias backend.dtype=bf16
own=$losses
for layout in "train.micro_batch=1" "parallel.tp=2"; do
    goes 2 1 1 parallel.safetensors bias backend.dtype=bf16 $layout
    expect_err 'fake: cuDNN was given [1-9][0-9]* graphs'
    expect near "$own" "$losses"
done
