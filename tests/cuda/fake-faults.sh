#!/bin/bash
# fake-faults.sh - would the fakes (tests/cuda/fake) find a fault of the plugins or of the core? Each is planted at a call,
# the program is left as it is; then either the fakes say what is wrong, or the numbers are not those of the golden case.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
golden=$top_srcdir/tests/golden
compare=$top_builddir/tests/golden/compare
fakes=$top_builddir/tests/cuda/fake/.libs
[ -e "$top_builddir/plugins/cuda/.libs/cuda.so" ] || skip "the plugin cuda is not built"
[ -e "$fakes/libcudart.so.13" ] || skip "the fake libraries are not built"

# planted FAULT N ARGUMENT...: leaves what all ranks said in err.
planted()
{
    local fault=$1 n=$2 step=()

    shift 2
    case_ "$fault on $n: $*"
    rm -f out.safetensors
    step=(env "LD_LIBRARY_PATH=$fakes" "TENON_FAKE_FAULT=$fault" "$TENON" step --case "$golden/bias.safetensors"
          --out out.safetensors backend.device=cuda backend.timeout=5 "$@")
    if [ "$n" = 1 ]; then
        run "${step[@]}"
    else
        ranks "$n" "${step[@]}" backend.threads=1
        err=$(cat rank.*.err)
    fi
}

# said FAULT N SENTENCE ARGUMENT...: the fakes say it, and the program does not end well.
said()
{
    local sentence=$3

    planted "$1" "$2" "${@:4}"
    expect_err "^fake: $sentence"
    expect [ "$rc" != 0 ]
}

# seen FAULT N ARGUMENT...: the fakes say nothing, but the numbers are wrong, so wrong even that the program stops.
seen()
{
    planted "$@"
    expect_not_err '^fake:'
    expect [ "$rc" != 124 ]
    expect numbers_are_wrong
}

numbers_are_wrong()
{
    [ "$rc" != 0 ] || ! "$compare" "$golden/bias.safetensors" out.safetensors >/dev/null
}

# Without a fault.
planted none:1 1
expect_rc 0
expect_not_err '^fake:'
run "$compare" "$golden/bias.safetensors" out.safetensors
expect_rc 0

# On one rank. Numbers of calls are such that the first update, a recorded one, and one launched by hand are met.
for n in 20 150 300; do
    seen null-stream:$n 1 backend.capture=no                    # a launch on the stream NULL
    seen other-stream:$n 1 backend.capture=no                   # on a stream of its own
    seen leading-dimension:$((n / 3)) 1                         # a matrix product with a leading dimension one too long
    said host-pointer:$n 1 '[a-z_<>0-9, ]+ is launched with a parameter in which, at byte [0-9]+, 0x[0-9a-f]+ is memory of the host'
    said use-after-free:$n 1 '[a-z_<>0-9, ]+ is launched with a parameter in which, .* allocation of [0-9]+ bytes that was freed' \
        backend.capture=no
done
for n in 1 60 130; do
    said copy-past-end:$n 1 'cudaMemcpyAsync: its (source|destination): .* go 1 bytes past the end of an allocation'
done
said leak:1 1 'leaked: 1 allocations, 0 streams'
said sync-in-capture:20 1 'cudaStreamSynchronize while a stream is recorded'
said malloc-in-capture:20 1 'cudaMalloc while a stream is recorded'

# Between streams, and between ranks.
if [ -e "$top_builddir/plugins/nccl/.libs/nccl.so" ] && [ -e "$fakes/libnccl.so.2" ]; then
    nccl=(2 backend.comm=nccl train.micro_batch=1)
    seen drop-wait:9+ "${nccl[@]}" backend.capture=no           # a stream that does not wait for another's event
    said drop-wait:18 2 'cudaStreamEndCapture: work of another stream that joined is not waited for' "${nccl[@]:1}"
    said counts:5 2 'nccl: operation [0-9]+ of a communicator: rank . called ncclAllReduce with count [0-9]+' "${nccl[@]:1}"
fi
if [ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ]; then      # a host that reads what is still to be copied
    seen no-wait:100+ 2 backend.comm=gloo train.micro_batch=1
fi
