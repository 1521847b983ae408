#!/bin/bash
# broken.sh - tenon plugins check finds what is wrong: twenty broken kernels, six broken communicators, three broken
# strategies and five broken optimizers, each a right one with one mistake, and each found by the test that is for it.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=200
[ -e "$top_builddir/plugins/ref/.libs/ref.so" ] || skip "ref was not built"
# Asking for too much is an answer; what a test leaves when it ends is not a leak.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1:detect_leaks=0

# build KIND N: KIND-N.so
build()
{
    run ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -fPIC -shared -fvisibility=hidden -DBROKEN="$2" \
        -I"$top_srcdir/libcore/include" -I"$top_srcdir" -I"$top_srcdir/plugins/local" -o "$1-$2.so" \
        "$top_srcdir/tests/abi/broken/$1.c" -lm -lpthread
    expect_rc 0
}

check()
{
    run "$TENON" plugins check "$@"
}

# caught KIND N TEST TEXT [ARGUMENT...]: TEST fails with TEXT, and the exit status is 1.
caught()
{
    local kind=$1 n=$2 test=$3 text=$4

    shift 4
    case_ "$kind $n"
    build "$kind" "$n"
    check "./$kind-$n.so" "$@"
    expect_rc 1
    expect_out "^FAILED $test"
    expect_out "$text"
}

for kind in kernels comm pass optimizer; do
    case_ "$kind without a mistake"
    build $kind 0
    if [ $kind = pass ]; then check ./pass-0.so --axis dp; else check ./$kind-0.so; fi
    expect_rc 0
    expect_out '^all [0-9]+ passed'
done

# case_of OP PROBLEM: the first test of an operation whose problem ends so.
case_of()
{
    "$TENON" plugins check ref --list 2>/dev/null | grep "^kernels/$1/" | grep -m 1 -- "$2" | cut -d ' ' -f 1
}

caught kernels 1 kernels/copy/1: 'output 0, element [0-9]+: -?nan, should be' --only=kernels/copy
caught kernels 2 kernels/copy/1: 'touched what lies behind output 0|wrote between or behind the elements of output 0' --only=kernels/copy
caught kernels 3 kernels/copy/2: 'wrote between or behind the elements of output 0' --only=kernels/copy
caught kernels 4 kernels/copy/1: 'changed input 0' --only=kernels/copy
caught kernels 5 kernels/copy/1: 'a second launch gives other bits in output 0' --only=kernels/copy
caught kernels 6 kernels/copy/1: '3 threads' --only=kernels/copy
caught kernels 7 kernels/copy/1: 'element 0: -?nan, should be' --only=kernels/copy
caught kernels 8 kernels/copy/2: 'output 0, element' --only=kernels/copy
caught kernels 9 kernels/copy/1: 'crashed' --only=kernels/copy
caught kernels 10 kernels/copy/6: 'should be -?nan' --only=kernels/copy
caught kernels 11 kernels/copy/1: 'touched what lies in front of input 0' --only=kernels/copy
caught kernels 12 kernels/sum/11: 'did not end within 3 s' --seconds=3 --only=kernels/sum/11,kernels/sum/1
caught kernels 13 kernels/einsum/1: 'should be' --only=kernels/einsum/1,kernels/einsum/2
caught kernels 14 kernels/copy/1: 'workspace' --only=kernels/copy
caught kernels 15 kernels/copy/1: 'left the process with status 0' --only=kernels/copy
caught kernels 16 kernels/einsum/ 'is rounded towards zero' --only="$(case_of einsum 'btc:h oc:h -> bto:h$')"
caught kernels 17 'kernels/(copy|declines)' 'a dtype that it does not know' --only=kernels/copy,kernels/declines
caught kernels 18 kernels/sum/1: '3 threads' --only=kernels/sum/1

caught kernels 19 kernels/ 'not alone, but behind others in one process, from kernels/[a-z]+/[0-9]+ on: output 0' --only=kernels --jobs=1

# The problems that share a process are told apart: the one that crashes is named, the others go on.
caught kernels 20 kernels/copy/4: 'crashed: signal 11' --only=kernels/accum,kernels/copy --jobs=1
expect_out '^1 of 18 failed'

caught comm 1 comm/2-ranks/every-operation 'not ' --only=comm/2-ranks
caught comm 2 comm/2-ranks/every-operation 'not ' --only=comm/2-ranks
caught comm 3 comm/2-ranks/late: 'rank [01] of 2, .*tn_comm_do' --only=comm/2-ranks/late
caught comm 4 comm/1-rank/refused-calls: 'start\(' --only=comm/1-rank
caught comm 5 comm/2-ranks/groups: 'not |==' --only=comm/2-ranks/groups
caught comm 6 comm/2-ranks/every-operation 'not ' --only=comm/2-ranks

caught pass 1 pass/dp/2-ranks: 'replicas differ' --axis=dp --only=pass/dp/2-ranks
caught pass 2 pass/dp/2-ranks: 'are not one process' --axis=dp --only=pass/dp/2-ranks
caught pass 3 pass/dp/2-ranks: 'rank' --axis=dp --only=pass/dp/2-ranks

caught optimizer 1 optimizer/descends: 'down a bowl' --only=optimizer/descends
caught optimizer 2 optimizer/nan: 'a NaN in the gradient gives the weight' --only=optimizer/nan
caught optimizer 3 optimizer/slots: 'the slot u is still 0' --only=optimizer/slots
caught optimizer 4 optimizer/choice: 'asked again' --only=optimizer/choice
caught optimizer 5 optimizer/descends: 'no such name' --only=optimizer/descends
