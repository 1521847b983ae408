#!/bin/bash
# check.sh - the report of tenon plugins check: what an author reads first, and what a program reads. The plugins are
# small ones with a mistake or none; tests/abi/broken.sh says which mistakes are found.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=120
[ -e "$top_builddir/plugins/ref/.libs/ref.so" ] || skip "ref was not built"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1:detect_leaks=0
export HOME=$tmp/home
mkdir -p "$HOME/.local/lib/tenon/plugins"

# build SOURCE FILE.so [FLAG...]
build()
{
    local source=$1 file=$2

    shift 2
    run ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden "$@" \
        -I"$top_srcdir/libcore/include" -o "$file" "$source" -lm
    expect_rc 0
}

# optimizer NAME DTYPE UPDATE [START]: NAME.so, with one slot m.
optimizer()
{
    cat >"$1.c" <<END
#include <tenon/optimizer.h>
#include <stdio.h>
static const struct tn_option options[] = {{"beta", "0.9", "share that is kept", 0, 1}, {0}};
static const struct tn_slot slots[] = {{"m", $2, 0}, {0}};
static const struct tn_optimizer optimizer = {
    .struct_size = sizeof optimizer, .options = options, .slots = slots, .update = "$3"};
static tn_status start(void)
{
    ${4:-}
    return TN_OK;
}
TN_PLUGIN_("$1", "0.1", "of a test", TN_OPTIMIZER_ID, start, NULL, {TN_OPTIMIZER_ID, &optimizer});
END
    build "$1.c" "$1.so"
}

case_ "a version that the note has no room for does not compile"
for version in 123456789012345 1234567890123456; do
    printf '#include <tenon/optimizer.h>\nstatic const struct tn_optimizer o = {.struct_size = sizeof o, .update = "w = w"};\n' >v.c
    echo "TN_PLUGIN(\"v\", \"$version\", \"of a test\", TN_OPTIMIZER_ID, &o);" >>v.c
    run ${CC:-cc} -std=c11 -fsyntax-only -I"$top_srcdir/libcore/include" v.c
    expect_rc $((${#version} > 15))
done

case_ "the optimizer of docs/plugins.md shows a NaN"
build "$top_srcdir/tests/abi/outside/signsgd.c" signsgd.so
run "$TENON" plugins check ./signsgd.so
expect_rc 0
expect_out '^all [0-9]+ passed'

case_ "a sign by comparing alone hides it"
optimizer sign TN_F32 'm = beta*m + g; w = w - lr*(ge(m, 0) - ge(0, m))'
run "$TENON" plugins check ./sign.so --only optimizer/nan
expect_rc 1
expect_out 'a NaN in the gradient gives the weight .*, so nobody sees it'

for dtype in TN_BF16 TN_F16; do
    case_ "slots of $dtype are rounded when they are kept, and no more"
    optimizer low-${dtype,,} $dtype 'm = beta*m + g; w = w - lr*m'
    run "$TENON" plugins check ./low-${dtype,,}.so --only optimizer
    expect_rc 0
    expect_out '^all 13 passed'
done

case_ "slots of integers"
optimizer whole TN_I32 'm = beta*m + g; w = w - lr*m'
run "$TENON" plugins check ./whole.so
expect_rc 1
expect_out 'its slot m has the dtype [0-9]+, which is no floating type'

case_ "words that are not understood: where, and the same words once"
optimizer words TN_F32 'm = beta*m + sign(g); w = w - lr*m'
run "$TENON" plugins check ./words.so --only optimizer
expect_rc 1
expect_out 'column 14: no such function at "sign\(g\); w = w - lr\*m"'
expect_out '^    as optimizer/descends$'

case_ "what the user has installed has no part in it"
cat >pretend.c <<'END'
#include <tenon/kit_device.h>
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 99;
    snprintf(why, (size_t)why_size, "of a test");
    return TN_OK;
}
static const struct tn_device_api device = TN_KIT_DEVICE("pretend", probe);
TN_PLUGIN("pretend", "0.1", "a device that everybody would take", TN_DEVICE_ID, &device);
END
build pretend.c "$HOME/.local/lib/tenon/plugins/pretend.so"
run "$TENON" plugins --explain
expect_out '^  pretend +99 +pretend +of a test'
run "$TENON" plugins check ./signsgd.so --only optimizer
expect_rc 0
build "$top_srcdir/tests/abi/broken/pass.c" pass.so -DBROKEN=0
run "$TENON" plugins check ./pass.so --axis dp --only pass/dp/2-ranks
expect_rc 0

case_ "failures of a group: the first five, and how many there are"
cat >wrong.c <<'END'
#include <tenon/kit_nest.h>
static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct tn_kit_nest *k = (const struct tn_kit_nest *)state;
    for (struct tn_kit_walk at = tn_kit_outer(k); tn_kit_next(&at);)
        tn_kit_out(k, l, &at, 0, tn_kit_in(k, l, &at, 0) + SHIFT);
    return TN_OK;
}
static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct tn_kit_nest *k;
    tn_status s = p->in[0].dtype != TN_F32 ? TN_DECLINED : tn_kit_nest_keep(p, &k);
    if (s != TN_OK)
        return s;
    out->state = k, out->launch = launch, out->release = free;
    return TN_OK;
}
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, (size_t)why_size, "of a test");
    return TN_OK;
}
static const char *const ops[] = {"copy", NULL};
static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = "cpu", .ops = ops, .probe = probe, .prepare = prepare};
TN_PLUGIN("wrong", "0.1", "copies, and adds", TN_KERNELS_ID, &kernels);
END
build wrong.c wrong.so -DSHIFT=1
run "$TENON" plugins check ./wrong.so --only kernels/copy
expect_rc 1
expect test "$(grep -c '^FAILED kernels/copy/' <<<"$out")" = 5
n=$(sed -n 's/^FAILED \([0-9]*\) more of kernels\/copy; --json has them all$/\1/p' <<<"$out")
expect_out "^$((n + 5)) of $((n + 5)) failed"
expect_out '^declined: [1-9][0-9]*, which is right: a run asks the next plugin'
build wrong.c right.so -DSHIFT=0
run "$TENON" plugins check ./right.so --only kernels/copy
expect_rc 0
expect_out '^kernels/copy( +[0-9]+){6} +0$'        # the worst error, which is none

case_ "what it printed: the cause, which comes first"
optimizer loud TN_F32 'm = beta*m + g; w = w - lr*m' \
    'fputs("the cause\n", stderr); for (int i = 0; i < 99; i++) fputs("and what came of it\n", stderr); return tn_error(TN_ERR, "no");'
run "$TENON" plugins check ./loud.so --only file/stops
expect_rc 1
expect_out 'it printed: the cause and what came of it .* \.\.\. .*and what came of it'

case_ "JSON, whatever a plugin says"
optimizer bytes TN_F32 'm = beta*m + g; w = w - lr*m' 'fputs("\xff\xfe", stderr); return tn_error(TN_ERR, "caf\xe9");'
run "$TENON" plugins check ./bytes.so --json
expect_rc 1
if command -v python3 >/dev/null; then
    printf '%s' "$out" >report.json
    run python3 -c 'import json; d = json.load(open("report.json")); print(d["abi"], d["failed"] > 0,
        all(t["why"] for t in d["tests"] if t["state"] == "failed"))'
    expect_rc 0
    expect test "$out" = "1 True True"
fi
