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
for name in signsgd builder toykernels; do
    run ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs $cflags \
        -o plugins/$name.so $name.c -lm
    expect_rc 0
done

case_ "one exported symbol, none of the core needed"
if command -v nm >/dev/null; then
    for name in signsgd builder toykernels; do
        run nm -D --defined-only plugins/$name.so
        expect_out '^[0-9a-f]+ T tn_plugin_entry$'
        expect [ "$(grep -c . <<<"$out")" = 1 ]
        run nm -D --undefined-only plugins/$name.so
        expect_not_out 'tn_'
    done
fi

# builder makes its nodes itself. A norm of each tensor, whole, in parts and in chunks: equal to one process.
case_ "an optimizer that makes its nodes"
gloo=$top_builddir/plugins/gloo/.libs/gloo.so
small="model.vocab_size=40 model.n_layer=1 model.n_head=2 model.n_embd=16 model.block_size=16 train.global_batch=4 train.micro_batch=1
    backend.threads=1 optimizer.name=builder plugins.path=plugins"
for layout in parallel.zero=1 parallel.zero=3 "parallel.tp=2 parallel.sp=yes" "parallel.pp=2 optimizer.lr_scale=*wte*=0.1 optimizer.weight_decay=0.5"; do
    [ -e "$gloo" ] || continue
    run "$TENON" verify $small $layout --ranks 2
    expect_rc 0
    expect_out '^equal: 2 ranks'
done

# deaf does not ask for the factor of a group, and must not be believed to heed it.
case_ "groups that an optimizer knows nothing of"
sed 's/tn_option(g, "lr_scale")/1/; s/"builder"/"deaf"/' builder.c >deaf.c
run ${CC:-cc} -std=c11 -O2 -fPIC -shared -fvisibility=hidden $cflags -o plugins/deaf.so deaf.c
expect_rc 0
run "$TENON" plan $small optimizer.name=deaf
expect_rc 0
run "$TENON" plan $small optimizer.name=deaf "optimizer.lr_scale=*wte*=0.1"
expect_rc 2
expect_err_lines
expect_err 'optimizer\.lr_scale has a factor for transformer\.wte\.weight, and this optimizer does not ask for one'
sed 's/tn_option(g, "length")/tn_option(g, "width")/; s/"builder"/"deaf"/' builder.c >deaf.c
run ${CC:-cc} -std=c11 -O2 -fPIC -shared -fvisibility=hidden $cflags -o plugins/deaf.so deaf.c
run "$TENON" plan $small optimizer.name=deaf
expect_rc 1
expect_err 'the optimizer asks for an option width, which is none of its own'
rm plugins/deaf.so

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
