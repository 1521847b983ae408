#!/bin/bash
# fake-nccl.sh - the real plugin nccl on the fake NCCL (tests/cuda/fake), each rank on a device of its own: the list that
# every communicator has to pass, on memory of the host and on memory of the device, waited for by the host, by the
# stream, recorded and replayed. TENON_NCCL_ORDER=ranks, since the fake adds in another order each time; without it fp32
# sums are NCCL's, and that the list finds out too.
. "$(dirname "$0")/../support/lib.sh"
fakes=$top_builddir/tests/cuda/fake/.libs
[ -e "$top_builddir/plugins/nccl/.libs/nccl.so" ] || skip "the plugin nccl is not built"
[ -e "$fakes/libnccl.so.2" ] || skip "the fake libraries are not built"
export TENON_NCCL_SCRATCH=1 RUN_SECONDS=280

# checks TEST...: those of the list, with three devices
checks()
{
    local only=$*

    case_ "$only"
    run env "LD_LIBRARY_PATH=$fakes" TENON_FAKE_DEVICES="${devices:-3}" "$TENON" plugins check nccl --only "${only// /,}"
}

export TENON_NCCL_ORDER=ranks
two=(open-and-close every-operation-dtype-and-size known-values special-numbers groups several-communicators-at-once
    several-in-flight sends-before-receives memory-that-only-its-process-can-read several-threads refused-calls)
checks comm/devices comm/1-rank "${two[@]/#/comm/2-ranks/}"
expect_rc 0
for way in wait stream; do
    checks comm-$way/1-rank comm-$way/2-ranks comm-$way/3-ranks/order-of-sums
    expect_rc 0
done
# Groups are left out: thousands of recordings take the fake a minute.
checks comm-record/1-rank comm-record/2-ranks/{open-and-close,every-operation-dtype-and-size,known-values,special-numbers} \
    comm-record/2-ranks/{several-in-flight,several-communicators-at-once,refused-calls} comm-record/3-ranks/order-of-sums
expect_rc 0

# Who is gone, aborts or never comes ends it for all. What NCCL does not find out is not here: README.md of the plugin.
checks comm/2-ranks/killed comm/2-ranks/killed-in-large-sums comm/2-ranks/never-sent comm/2-ranks/aborted comm/2-ranks/never-started
expect_rc 0
checks comm/3-ranks/every-operation-dtype-and-size comm/3-ranks/sends-before-receives
expect_rc 0

case_ "a rank without a device of its own"
devices=2 checks comm/3-ranks comm/2-ranks/known-values
expect_rc 0
expect_out '^comm +1 +0 +0 +0 +0 +1'
expect_out '^skipped: comm/3-ranks: each rank has a device of its own, and of cuda there are 2 here: .*rank 2 of this host'
devices=1 checks comm/2-ranks comm-stream comm-wait/1-rank/known-values
expect_rc 0
expect_out '^skipped: comm/2-ranks and 1 more: each rank has a device of its own, and of cuda there is 1 here'

unset TENON_NCCL_ORDER
checks comm-stream/2-ranks/every-operation-dtype-and-size comm-stream/2-ranks/special-numbers
expect_rc 0
checks comm-stream/3-ranks/order-of-sums
expect_rc 1
expect_out 'order of sums'

case_ "without a driver it says so, and by name it stops"
run "$TENON" plugins --explain
expect_out '^  nccl +0 +cuda, cpu +not usable: no dr'
run "$TENON" plugins check nccl --only comm/unlaunched,comm-stream
expect_rc 0
