#!/bin/bash
# fake-check.sh - the real plugin cuda on the fake runtime (tests/cuda/fake), by tenon plugins check: the device, and
# kernels launched by hand and from recordings.
. "$(dirname "$0")/../support/lib.sh"
fakes=$top_builddir/tests/cuda/fake/.libs
[ -e "$top_builddir/plugins/cuda/.libs/cuda.so" ] || skip "the plugin cuda is not built"
[ -e "$fakes/libcudart.so.13" ] || skip "the fake libraries are not built"
export RUN_SECONDS=280

# checks TEST...
checks()
{
    local only=$*

    case_ "$only"
    run env "LD_LIBRARY_PATH=$fakes" "$TENON" plugins check cuda --only "${only// /,}"
    expect_rc 0
}

checks device
checks kernels/copy recorded/copy recorded/sum recorded/dropout recorded/embed recorded/layernorm
expect_out '^recorded/copy +12 +12 +12 '
expect_out '^recorded/sum +27 +27 +27 '
