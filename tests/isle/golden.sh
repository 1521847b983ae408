#!/bin/bash
# golden.sh - updates on a device with an address space of its own, whose kernels are the base operations alone, come out
# as float64 autograd says: alone and with every strategy, over a communicator that does not know the device.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
golden=$top_srcdir/tests/golden
compare=$top_builddir/tests/golden/compare
isle=$top_builddir/tests/isle
[ -e "$isle/isle.so" ] || skip "make check builds $isle/isle.so"
on="plugins.path=$isle/isle.so backend.device=isle backend.threads=1"

# passes N CASE ARGUMENT...
passes()
{
    local n=$1 case=$2

    shift 2
    case_ "$case on $n: $*"
    rm -f out.safetensors
    if [ "$n" = 1 ]; then
        run "$TENON" step --case "$golden/$case.safetensors" --out out.safetensors $on "$@"
    else
        ranks "$n" "$TENON" step --case "$golden/$case.safetensors" --out out.safetensors $on backend.comm=gloo "$@"
    fi
    expect_rc 0
    run "$compare" "$golden/$case.safetensors" out.safetensors
    expect_rc 0
}

for case in bias nobias odd sgd llama_gqa llama_mqa llama_mha mixtral mixtral_one mixtral_even; do
    passes 1 $case
done
passes 1 sgd train.micro_batch=1
passes 1 bias train.recompute=yes
case_ "what this device lacks"
run "$TENON" step --case "$golden/bias.safetensors" --out low.safetensors $on backend.dtype=bf16
expect_rc 2
expect_err_lines
expect_err 'backend\.dtype = bf16: the device isle \(isle 0, of the plugin isle\) has fp32 and int32, not bf16; fp32 runs on every device'
expect_no_file low.safetensors
run "$TENON" step --case "$golden/bias.safetensors" --out low.safetensors $on backend.kernels=ref
expect_rc 2
expect_err 'ref: these kernels work on the device cpu, backend\.device is isle'

[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || exit 0
passes 2 bias train.micro_batch=1
passes 2 bias train.micro_batch=1 parallel.zero=2 backend.debug=yes
passes 3 odd train.micro_batch=1 parallel.zero=3
passes 2 bias parallel.tp=2
passes 3 odd parallel.tp=3 parallel.sp=yes
passes 2 nobias parallel.cp=2 parallel.ring=no
passes 3 odd parallel.cp=3 parallel.ring=no parallel.zigzag=no
passes 2 bias parallel.pp=2 train.micro_batch=1
passes 2 nobias parallel.pp=2 train.micro_batch=1 parallel.schedule=afab
passes 2 bias parallel.pp=2 parallel.schedule=interleaved
passes 3 odd parallel.pp=3 train.micro_batch=3
passes 4 bias parallel.tp=2 parallel.sp=yes train.micro_batch=1 parallel.zero=3
passes 4 sgd parallel.cp=2 parallel.ring=no train.micro_batch=2 parallel.zero=2
passes 4 nobias parallel.pp=2 parallel.cp=2 parallel.ring=no train.micro_batch=1
passes 4 bias parallel.pp=2 train.micro_batch=1 parallel.zero=3
passes 2 llama_gqa parallel.tp=2 parallel.sp=yes
passes 3 llama_mha parallel.cp=3 parallel.ring=no
passes 3 llama_mqa train.micro_batch=1 parallel.zero=3
passes 3 llama_mha parallel.pp=3 train.micro_batch=1
# Without packed kernels each expert computes each token, and rows that are not sent are zeros.
passes 2 mixtral train.micro_batch=1 parallel.ep=2
passes 3 mixtral_one train.micro_batch=1 parallel.ep=3 parallel.zero=3
passes 4 mixtral train.micro_batch=1 parallel.ep=2 parallel.tp=2 parallel.sp=yes

case_ "a ring of parts that nobody can compute"
ranks 2 "$TENON" step --case "$golden/nobias.safetensors" --out ring.safetensors $on backend.comm=gloo parallel.cp=2
expect_rc 2
expect_err 'parallel\.cp: a ring needs kernels for attention and attn_bwd.*parallel\.ring = no'
expect_no_file ring.safetensors

# The same device with kernels for attention: parts of a ring are computed while the next keys travel. It records, too.
on="plugins.path=$isle/reef.so backend.device=reef backend.threads=1"
passes 1 bias backend.capture=yes
passes 1 odd backend.capture=yes
passes 1 bias backend.capture=no
passes 2 nobias parallel.cp=2
passes 3 odd parallel.cp=3
passes 2 llama_mha parallel.cp=2
passes 4 nobias parallel.pp=2 parallel.cp=2 train.micro_batch=1
passes 4 sgd parallel.cp=2 train.micro_batch=2 parallel.zero=2
