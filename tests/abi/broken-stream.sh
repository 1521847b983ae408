#!/bin/bash
# broken-stream.sh - tenon plugins check on a plugin with a device that records, kernels, and a communicator that takes the
# device's memory in the order of streams: right as it is, and with ten mistakes, each found by the test that is for it.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=200
[ -e "$top_builddir/plugins/ref/.libs/ref.so" ] || skip "ref was not built"
# Asking for too much is an answer; what a test leaves when it ends is not a leak.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1:detect_leaks=0

# build N [FLAG...]: stream-N.so
build()
{
    local n=$1

    shift
    run ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -fPIC -shared -fvisibility=hidden -DBROKEN="$n" -DREEF "$@" \
        -I"$top_srcdir/libcore/include" -I"$top_srcdir" -I"$top_srcdir/plugins/local" -o "stream-$n.so" \
        "$top_srcdir"/tests/abi/broken/stream{,_local}.c "$top_srcdir/plugins/local/result.c" \
        "$top_srcdir"/tests/isle/{attention,kernel,nest,queue,record,sea,table}.c -lm -lpthread
    expect_rc 0
}

# caught N TEST TEXT: TEST fails with TEXT, and the exit status is 1.
caught()
{
    case_ "stream $1"
    build "$1"
    run "$TENON" plugins check "./stream-$1.so" --only "$2"
    expect_rc 1
    expect_out "^FAILED $2"
    expect_out "$3"
}

case_ "without a mistake"
build 0
run "$TENON" plugins check ./stream-0.so --only file,device,recorded/copy,recorded/sum,recorded/dropout,comm/2-ranks,comm-wait,comm-stream,comm-record
expect_rc 0
expect_out '^recorded/copy +12 +8 +8 '
expect_out '^comm-stream/2-ranks +13 +13 +13 '
expect_out '^comm-record/2-ranks +8 +8 +8 '

caught 1 recorded/copy/1 'it was done while it was written down: operand 1 has changed'
caught 2 recorded/copy/1 'replay 1 gives other bits in output 0 than a launch'
caught 3 device/capture 'the second replay: byte 0'
caught 4 device/capture-order 'what a replay copied that came behind a fill: byte 0'
caught 5 comm-wait/2-ranks/known-values 'a\[0\] == 3'
caught 6 comm-stream/2-ranks/in-the-order-of-the-stream 'element [0-9]+ is [0-9a-fx]+, should be 0x'
caught 7 comm-stream/2-ranks/in-the-order-of-the-stream 'element [0-9]+ is [0-9a-fx]+, should be 0x'
caught 8 comm-stream/2-ranks/nobody-waits 'tn_comm_now\(\) - begin < most'
caught 9 comm-stream/2-ranks/aborted 's < 0'
caught 10 comm-stream/2-ranks/replayed-with-other-numbers 'replay 2 gives other bits than without a recording'

# The device, which opens slowly, is opened by each process once, and not for each of the hundreds of problems.
case_ "a device that opens slowly"
build 0 -DOPENS='"opens"'
run "$TENON" plugins check ./stream-0.so --only kernels,recorded,gradient --jobs 2
expect_rc 0
expect_out '^all +9[0-9][0-9] '
opens=$(wc -c <opens)
expect [ "$opens" -ge 10 ]
expect [ "$opens" -le 40 ]
