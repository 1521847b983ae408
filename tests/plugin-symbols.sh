#!/bin/bash
# plugin-symbols.sh - what crosses the border of each plugin just built: one exported function, tn_plugin_entry,
# the note to be read before loading, and no symbol of the core that it would need (DESIGN.md, ABI rules 1, 4, 5).
. "$(dirname "$0")/support/lib.sh"
command -v nm >/dev/null && command -v readelf >/dev/null || skip "no binutils"

for plugin in "$top_builddir"/plugins/*/.libs/*.so; do
    [ -e "$plugin" ] || skip "no plugin was built"
    case_ "exports of ${plugin##*/}"
    run nm -D --defined-only --format=posix "$plugin"
    expect test "$(cut -d' ' -f1 <<<"$out")" = tn_plugin_entry
    case_ "needs of ${plugin##*/}"
    run nm -D --undefined-only --format=posix "$plugin"
    expect_rc 0
    expect_not_out '^tn_'
    case_ "note of ${plugin##*/}"
    run readelf --notes --wide "$plugin"
    expect_out '^ *Tenon '
done
