#!/bin/bash
# outside.sh - an optimizer and kernels, one C file each, written outside of this tree: built with nothing but the
# installed headers as pkg-config names them, found through TENON_PLUGIN_PATH, listed and explained.
. "$(dirname "$0")/../support/lib.sh"

command -v make >/dev/null || skip "there is no make"
[ -f "$top_builddir/config.status" ] || skip "$top_builddir is no build tree"

case_ "the headers are installed"
MAKEFLAGS='' MFLAGS='' MAKELEVEL='' run make -C "$top_builddir" install DESTDIR="$tmp/stage"
expect_rc 0
pc=$(find "$tmp/stage" -name tenon.pc)
expect [ -n "$pc" ]
cflags=-I$(dirname "$(find "$tmp/stage" -path '*/tenon/abi.h')")/..
if command -v pkg-config >/dev/null; then
    cflags=$(PKG_CONFIG_SYSROOT_DIR=$tmp/stage PKG_CONFIG_LIBDIR=$(dirname "$pc") pkg-config --cflags tenon)
fi
expect [ -n "$cflags" ]
case $cflags in *"$tmp/stage"*) ;; *) fail "$cflags is not the installed folder" ;; esac

case_ "one file, one command"
mkdir plugins
cp "$top_srcdir"/tests/abi/outside/*.c .
for name in signsgd toykernels; do
    run ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs $cflags \
        -o plugins/$name.so $name.c -lm
    expect_rc 0
done

case_ "one exported symbol, none of the core needed"
if command -v nm >/dev/null; then
    for name in signsgd toykernels; do
        run nm -D --defined-only plugins/$name.so
        expect_out '^[0-9a-f]+ T tn_plugin_entry$'
        expect [ "$(grep -c . <<<"$out")" = 1 ]
        run nm -D --undefined-only plugins/$name.so
        expect_not_out 'tn_'
    done
fi

case_ "what toykernels computes is what ref computes"
ref=$top_builddir/plugins/ref/.libs/ref.so conform=$top_builddir/tests/conformance/test_cpu
if [ -e "$ref" ] && [ -x "$conform" ]; then
    mkdir -p tree/plugins/{ref,toykernels}/.libs
    cp "$ref" tree/plugins/ref/.libs/
    cp plugins/toykernels.so tree/plugins/toykernels/.libs/
    run env top_builddir="$tmp/tree" "$conform" toykernels
    expect_rc 0
    expect_out '^toykernels: [1-9][0-9]+ checked, .* 0 failed$'
fi

for program in "$TENON" "$(find "$tmp/stage" -path '*/bin/tenon')"; do
    export TENON_PLUGIN_PATH=$tmp/plugins

    case_ "$program lists them"
    run "$program" plugins
    expect_rc 0
    expect_out "^signsgd +0\.1 +optimizer +.*$tmp/plugins/signsgd.so"
    expect_out "^toykernels +0\.1 +kernels +.*$tmp/plugins/toykernels.so"

    case_ "$program explains them"
    run "$program" plugins --explain
    expect_rc 0
    expect_out 'signsgd'
    expect_out 'toykernels +2 +cpu +a toy'
    expect_out "TENON_PLUGIN_PATH.*$tmp/plugins"

    case_ "$program does not know them without being told"
    unset TENON_PLUGIN_PATH
    run "$program" plugins
    expect_rc 0
    expect_not_out 'signsgd|toykernels'
done
