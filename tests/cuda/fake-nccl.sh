#!/bin/bash
# fake-nccl.sh - the real plugin nccl on the fake NCCL (tests/cuda/fake): the list that every communicator has to pass, on
# memory of the host and, by tests/cuda/through.c, on memory of the device: waited for by the host, by the stream,
# recorded and replayed. TENON_NCCL_ORDER=ranks, since the fake adds in another order each time; without it fp32 sums are
# NCCL's, and that the list finds out too.
. "$(dirname "$0")/../support/lib.sh"
fakes=$top_builddir/tests/cuda/fake/.libs
through=$top_builddir/tests/cuda/.libs/through.so
[ -e "$top_builddir/plugins/nccl/.libs/nccl.so" ] || skip "the plugin nccl is not built"
[ -e "$fakes/libnccl.so.2" ] || skip "the fake libraries are not built"
mkdir both
cp "$top_builddir/plugins/cuda/.libs/cuda.so" "$top_builddir/plugins/nccl/.libs/nccl.so" both
export TN_THROUGH=$PWD/both TENON_NCCL_SCRATCH=1 RUN_SECONDS=280

# checks WAY TEST...: the tests of the list, by their names behind comm/
checks()
{
    local way=$1 only= name

    shift
    for name; do only+=${only:+,}comm/$name; done
    case_ "$way: $*"
    run env "LD_LIBRARY_PATH=$fakes" "TN_THROUGH_WAY=$way" "$TENON" plugins check "$through" --jobs 2 --only "$only"
}

one="1-rank/every-operation-dtype-and-size 1-rank/several-in-flight 1-rank/refused-calls"
two="2-ranks/open-and-close 2-ranks/every-operation-dtype-and-size 2-ranks/known-values 2-ranks/special-numbers
    2-ranks/several-in-flight 2-ranks/several-communicators-at-once 2-ranks/refused-calls"
export TENON_NCCL_ORDER=ranks
for way in host wait stream record; do
    checks $way $one $two 3-ranks/order-of-sums
    expect_rc 0
done
for way in host stream; do
    checks $way 1-rank/sends-before-receives 2-ranks/sends-before-receives 3-ranks/sends-before-receives \
        4-ranks/sends-before-receives
    expect_rc 0
done
checks host 3-ranks/every-operation-dtype-and-size 4-ranks/several-in-flight 4-ranks/order-of-sums 2-ranks/several-threads
expect_rc 0

# Who is gone, aborts or never comes ends it for all.
checks host 2-ranks/killed 2-ranks/killed-in-large-sums 2-ranks/never-sent 2-ranks/aborted 2-ranks/never-started
expect_rc 0

unset TENON_NCCL_ORDER
checks stream 2-ranks/every-operation-dtype-and-size 3-ranks/special-numbers
expect_rc 0
checks stream 3-ranks/order-of-sums
expect_rc 1
expect_out 'order of sums'

case_ "without a driver it says so, and by name it stops"
run "$TENON" plugins --explain
expect_out '^  nccl +0 +cuda, cpu +not usable: no dr'
