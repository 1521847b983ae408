#!/bin/bash
# newer.sh - a host of the level to come, and plugins of it: made of these sources by adding a member to every struct that
# may grow, a function to the host's and the graph's tables, and an interface. It runs the plugins that are kept of level 1
# as this host does. In reverse, a plugin of the new level is refused here with both ranges; one that asks TN_HAS runs on
# both.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/abi/kept-runs.sh"
. "$top_srcdir/tests/abi/host-lib.sh"
! sanitized || skip "plugins with a sanitizer load in no other program"
[ "$(uname -m)" = x86_64 ] || skip "the kept plugins are for x86-64"
kept=$(ls -d "$top_srcdir"/tests/abi/kept/level-* 2>/dev/null | head -n 1)
[ -n "$kept" ] || skip "no level is kept yet: tests/abi/keep.sh"
export HOME=$tmp
level=$(sed -n 's/^#define TN_ABI \([0-9]*\).*/\1/p' "$top_srcdir/libcore/include/tenon/abi.h")
next=$((level + 1))

case_ "a host of level $next"
host_sources newer
growing=$(sed -n 's/^SIZE(\(tn_[a-z_]*\), .*/\1/p' "$top_srcdir/tests/abi/offsets.c" | tr '\n' ' ')
expect [ "$(wc -w <<<"$growing")" -gt 15 ]
for header in newer/libcore/include/tenon/*.h; do
    awk -v growing=" $growing" '
        /^struct tn_[a-z_]+ \{/ { name = $2 }
        /^};/ && index(growing, " " name " ") { print "    void *(*newer)(void);                       /* " name ", level to come */"; name = "" }
        { print }' "$header" >grown.h
    mv grown.h "$header"
done
expect [ "$(cat newer/libcore/include/tenon/*.h | grep -c 'level to come')" = "$(wc -w <<<"$growing")" ]
sed -i "s/^#define TN_ABI $level .*/#define TN_ABI $next/" newer/libcore/include/tenon/abi.h
# an interface, with a table of one function, that plugins get from the host
sed -i 's|^struct tn_graph_api;$|&\n#define TN_NEWER_ID "tenon.newer/1"\nstruct tn_newer {\n    uint32_t struct_size, reserved0;\n    int32_t (*answer)(void);\n};|' \
    newer/libcore/include/tenon/abi.h
sed -i 's|^    tn_blame_begin();$|    tn_host_provide(TN_NEWER_ID, \&newer_table);\n    tn_host_table.newer = newer_function;\n&|
        s|^static int dispatch(|static int32_t newer_answer(void)\n{\n    return 42;\n}\nstatic const struct tn_newer newer_table = {sizeof newer_table, 0, newer_answer};\nstatic void *newer_function(void)\n{\n    return (void *)\&newer_table;\n}\n\n&|
        s|^#include "plugin/load.h"$|&\n#include "plugin/host.h"|' newer/apps/tenon/main.c
expect grep -q newer_table newer/apps/tenon/main.c
host_build newer ${CC:-cc} -O0
[ -x newer/tenon ] || exit
run newer/tenon --version
expect_out "plugin ABI $next"

case_ "level $level on it"
cp -R "$kept" kept
chmod -R go-w kept
TENON_PLUGIN_PATH=$(built_plugins)
export TENON_PLUGIN_PATH
kept_runs kept "$tmp/newer/tenon"
unset TENON_PLUGIN_PATH

# --- the reverse
cat >needs.c <<'END'
#include <tenon/optimizer.h>
static const struct tn_slot slots[] = {{0}};
static const struct tn_option options[] = {{0}};
static const struct tn_optimizer optimizer = {.struct_size = sizeof optimizer, .options = options, .slots = slots, .update = "w = w - lr*g"};
static tn_status start(void)
{
    const struct tn_newer *table = TN_HAS(tn_host, newer) ? tn_host->newer() : NULL;

    if (table != tn_host->interface(TN_NEWER_ID))
        return tn_error(TN_ERR, "the host's new function and its new interface do not agree");
    tn_host->log(1, table && table->answer() == 42 ? "the newer host answers" : "the host is an older one");
    return TN_OK;
}
TN_PLUGIN_("needs", "1", "of the level to come", TN_OPTIMIZER_ID, start, NULL, {TN_OPTIMIZER_ID, &optimizer});
END
flags="-std=c11 -D_GNU_SOURCE -O1 -Wall -fPIC -shared -fvisibility=hidden -Inewer/libcore/include"
mkdir strict both uses
make_tiny
run ${CC:-cc} $flags -o strict/needs.so needs.c
expect_rc 0
run ${CC:-cc} $flags -DTN_ABI_MIN=$level -o both/needs.so needs.c
expect_rc 0
sed -i 's/\.update = /.newer = (void *(*)(void))start, &/; s/^static const struct tn_optimizer/static tn_status start(void);\n&/' needs.c
run ${CC:-cc} $flags -DTN_ABI_MIN=$level -o uses/needs.so needs.c
expect_rc 0

# trains PROGRAM FOLDER RUN
trains()
{
    TENON_PLUGIN_PATH=$(built_plugins) run "$1" train tiny.ini checkpoint.dir="$3" plugins.path="$2" optimizer.name=needs train.steps=2 \
        backend.device=cpu backend.kernels=ref
}

case_ "a plugin of level $next alone, here"
trains "$TENON" strict no
expect_rc 2
expect_err "optimizer\.name = needs: strict/needs\.so: speaks ABI $next to $next, this host speaks 1 to $level; rebuild it with this host's headers"
expect_no_file no
case_ "and there"
trains "$tmp/newer/tenon" strict strict-there
expect_rc 0
expect_err 'the newer host answers'

case_ "one that speaks both, here and there"
trains "$TENON" both both-here
expect_rc 0
expect_err 'the host is an older one'
trains "$tmp/newer/tenon" both both-there
expect_rc 0
expect_err 'the newer host answers'
same_checkpoint both-here both-there 2

case_ "one that says it speaks both and uses what this host does not know"
trains "$TENON" uses no
expect_rc 2
expect_err 'uses/needs\.so: tenon\.optimizer/1 says something at byte [0-9]+ that this host does not know .*; it needs a newer host'
expect_no_file no
trains "$tmp/newer/tenon" uses uses-there
expect_rc 0
