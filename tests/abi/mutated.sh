#!/bin/bash
# mutated.sh - 10000 plugins with damaged headers before the check that precedes dlopen, under ASan and UBSan where the
# compiler has them; some of them as files before `tenon plugins` and `tenon train`.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
good=$top_builddir/tests/abi/hostile/good.so
[ -e "$good" ] || skip "make check builds $good"
export HOME=$tmp
core=$top_srcdir/libcore

case_ "10000 copies"
sanitize="-fsanitize=address,undefined -fno-sanitize-recover=all"
echo 'int main(void) { return 0; }' >try.c
${CC:-cc} $sanitize try.c -o try 2>/dev/null && ./try || sanitize=
run ${CC:-cc} -std=c11 -D_GNU_SOURCE -g -O1 $sanitize -I"$core" -I"$core/include" -o mutate "$top_srcdir/tests/abi/mutate.c" \
    "$core/plugin/elf.c" "$core/plugin/card.c" "$core/base/plain.c"
expect_rc 0
mkdir files
run ./mutate "$good" "${MUTATE_SEED:-1}" "${MUTATE_COUNT:-10000}" files 40
expect_rc 0
expect_out '^10000 copies, [0-9]+ accepted, [0-9]+ refused$'
expect_err_lines 0
expect [ "$(ls files | wc -l)" = 80 ]

case_ "as files, before the loader"
cp "$good" files/zgood.so
run "$TENON" plugins plugins.path=files
expect_rc 0
expect_out '^good .* files/zgood\.so +ready$'
expect [ "$(grep -c ' files/' <<<"$out")" = 81 ]
# whatever is listed is usable, or has a cause
expect_not_out ' files/[a-z0-9-]+\.so *$'

case_ "beside a run"
make_tiny
train plain train.steps=2
train beside train.steps=2 plugins.path=files
same_checkpoint plain beside 2
