#!/bin/bash
# kit.sh - a communicator that tenon plugins new writes tells a rank that is stopped from one that is late.
. "$(dirname "$0")/../support/lib.sh"
test_comm=$top_builddir/tests/conformance/test_comm
[ -x "$test_comm" ] || skip "make check builds $test_comm"

case_ "late and stopped are two sentences"
run "$TENON" plugins new comm kit
expect_rc 0
mkdir -p tree/plugins/kit/.libs
run ${CC:-cc} -std=c11 -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I"$top_srcdir/libcore/include" \
    -o tree/plugins/kit/.libs/kit.so kit/kit.c -lm -lpthread
expect_rc 0
run env top_builddir="$tmp/tree" "$test_comm" silent kit
expect_rc 0

case_ "a rank that is not known to this host"
sed 's,/proc/self/ns/pid,/proc/self/ns/none,' "$top_srcdir/libcore/include/tenon/kit_comm.h" >kit_comm.h
run ${CC:-cc} -std=c11 -O1 -fPIC -shared -fvisibility=hidden -include ./kit_comm.h -I"$top_srcdir/libcore/include" \
    -o tree/plugins/kit/.libs/kit.so kit/kit.c -lm -lpthread
expect_rc 0
run env top_builddir="$tmp/tree" "$test_comm" silent kit
expect_rc 1
expect_err 'rank 1 does not answer: after 1 s it has not sent its part of all_reduce 5'
