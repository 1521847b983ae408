#!/bin/bash
# fake-golden.sh - the real plugin cuda on fake libraries (tests/cuda/fake), without a GPU: the golden cases come out as
# float64 autograd says, whatever order the fake device draws, with and without recording, on one rank and on several.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
golden=$top_srcdir/tests/golden
compare=$top_builddir/tests/golden/compare
fakes=$top_builddir/tests/cuda/fake/.libs
[ -e "$top_builddir/plugins/cuda/.libs/cuda.so" ] || skip "the plugin cuda is not built"
[ -e "$fakes/libcudart.so.13" ] || skip "the fake libraries are not built"

# passes N SEED CASE ARGUMENT...
passes()
{
    local n=$1 seed=$2 case=$3 step=()

    shift 3
    case_ "$case on $n, order $seed: $*"
    rm -f out.safetensors
    step=(env "LD_LIBRARY_PATH=$fakes" TENON_FAKE_SUMMARY=1 "TENON_FAKE_SEED=$seed" "$TENON" step
          --case "$golden/$case.safetensors" --out out.safetensors backend.device=cuda "$@")
    if [ "$n" = 1 ]; then run "${step[@]}"; else ranks "$n" "${step[@]}"; fi
    expect_rc 0
    expect_err "fake: seed $seed, [1-9][0-9]* launches, [1-9][0-9]* products"
    said=$err
    run "$compare" "$golden/$case.safetensors" out.safetensors
    expect_rc 0
}

for case in bias nobias odd sgd; do
    for seed in 0 1 2; do
        passes 1 $seed $case
        expect grep -Eq '[1-9][0-9]* replays' <<<"$said"
        passes 1 $seed $case backend.capture=no
        expect grep -q ' 0 replays' <<<"$said"
    done
done

for case in llama_gqa llama_mqa llama_mha mixtral mixtral_one; do
    passes 1 3 $case
    passes 1 4 $case backend.capture=no
done

# On several ranks: the collectives by the real plugin nccl, or by gloo through memory of the host.
comms=()
[ -e "$top_builddir/plugins/nccl/.libs/nccl.so" ] && [ -e "$fakes/libnccl.so.2" ] && comms+=(nccl)
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] && comms+=(gloo)
seed=0
for comm in "${comms[@]}"; do
    for capture in auto no; do
        for layout in "2 bias train.micro_batch=1" "2 sgd train.micro_batch=1 parallel.zero=3" "2 bias parallel.tp=2" \
            "2 nobias parallel.pp=2 train.micro_batch=1" "3 odd train.micro_batch=1 parallel.zero=3" \
            "2 nobias parallel.cp=2" "2 llama_gqa parallel.tp=2 parallel.sp=yes" "2 llama_mqa parallel.cp=2" "2 mixtral train.micro_batch=1 parallel.ep=2" "4 bias parallel.tp=2 train.micro_batch=1 parallel.zero=3" \
            "4 bias parallel.pp=2 parallel.tp=2 train.micro_batch=1"; do
            read -ra words <<<"$layout"
            passes "${words[0]}" $((seed++)) "${words[@]:1}" backend.comm="$comm" backend.threads=1 backend.capture=$capture
            [ "$comm" = gloo ] || expect grep -Eq '[1-9][0-9]* collectives' <<<"$said"
        done
    done
done
