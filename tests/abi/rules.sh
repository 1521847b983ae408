#!/bin/bash
# rules.sh - under backend.debug a plugin that calls on the wrong thread or in the wrong state ends the run with a sentence
# that names its file; without a mistake the run is as without it.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
[ -e "$top_builddir/plugins/ref/.libs/ref.so" ] || skip "ref was not built"
# Asking for too much is an answer; what a test leaves when it ends is not a leak.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1:detect_leaks=0
make_tiny

build()
{
    run ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -fPIC -shared -fvisibility=hidden -DBROKEN="$1" \
        -I"$top_srcdir/libcore/include" -o rules.so "$top_srcdir/tests/abi/broken/rules.c" -lm -lpthread
    expect_rc 0
}

debug()
{
    rm -rf run
    run "$TENON" train tiny.ini checkpoint.dir=run train.steps=2 backend.kernels=rules,ref plugins.path=rules.so "$@"
}

case_ "no rule is broken"
build 0
debug backend.debug=yes
expect_rc 0
with=$(losses run)
debug
expect_rc 0
expect test "$with" = "$(losses run)"
run "$TENON" plugins check rules.so
expect_rc 0

# broken N SENTENCE
broken()
{
    case_ "rule $1"
    build "$1"
    debug backend.debug=yes
    expect_rc 1
    expect_err "^tenon: debug: .*$2"
    expect_err 'rules\.so'
}

broken 1 "parallel is called on a thread of the plugin's own"
broken 2 'barrier is called outside of a team'
broken 3 'sumsq failed with status -1 and recorded no sentence'
broken 4 'launch of sumsq gives status 1; declining is for prepare'
broken 5 'a function of the graph is called, and no graph is being built'
broken 6 'its table of tenon.kernels/1 is not what it was'
broken 7 'is recorded with status 0, which is none'
broken 8 'prepare of sumsq succeeds without a launch'

case_ "the same by plugins check"
build 2
run "$TENON" plugins check rules.so --only kernels/sumsq
expect_rc 1
expect_out 'barrier is called outside of a team'
