#!/bin/bash
# kept.sh - binaries of the released levels (tests/abi/kept) load in this build and give the numbers that they gave: golden
# cases alone and over every strategy, with all that is theirs - device, kernels, optimizer, strategies, communicator,
# bootstrap. And their structs are the beginning of ours.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
. "$top_srcdir/tests/abi/kept-runs.sh"
[ "$(uname -m)" = x86_64 ] || skip "the kept plugins are for x86-64"
export HOME=$tmp

found=0
for level in "$top_srcdir"/tests/abi/kept/level-*; do
    [ -e "$level/MADE" ] || continue
    found=$((found + 1))
    # what a checkout allows is not what a plugin must have
    cp -R "$level" "here-${level##*/}"
    chmod -R go-w "here-${level##*/}"
    (cd "here-${level##*/}" && sed 1d MADE | sha256sum -c --quiet -) || fail "MADE does not fit its files"
    kept_runs "here-${level##*/}" "$TENON"
    case_ "${level##*/}: structs have grown at their ends alone"
    sed -e '/^#define SIZE/s/ == / >= /' -e 's/^#define FROZEN.*/#define FROZEN(STRUCT, BYTES) _Static_assert(sizeof(struct STRUCT) == (BYTES), "size of " #STRUCT)/' \
        "$level/offsets.c" >offsets.c
    expect [ "$(grep -c ' >= ' offsets.c)" = 1 ]
    run ${CC:-cc} -std=c11 -fsyntax-only -Wall -Werror -I"$top_srcdir/libcore/include" offsets.c
    expect_rc 0
    case_ "${level##*/}: the sources say the same with today's headers"
    for name in "$level"/sources/*; do
        run ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I"$top_srcdir/libcore/include" \
            -o "again-${name##*/}.so" "$name"/*.c -Wl,-z,defs -lm -lpthread
        expect_rc 0
    done
done
[ $found -gt 0 ] || skip "no level is kept yet: tests/abi/keep.sh"
