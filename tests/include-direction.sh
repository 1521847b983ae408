#!/bin/bash
# include-direction.sh - arrows of #include point one way: down the list of libcore's folders, and from apps and
# plugins to the headers that they may see. Run without arguments it first proves itself on planted violations,
# then judges the tree; with a folder it judges that folder only.
#
#   libcore/X    <tenon/...>, system headers, "Y/..." for a folder Y not after X in the list
#   public       (libcore/include) <tenon/...> and system headers
#   plugins/P    <tenon/...>, system headers, files of its own folder, "streams/..." which is compiled into some
#   apps/A       <tenon/...>, system headers, files of its own folder, "Y/..." for any folder Y of libcore
set -u
order="base mesh graph plugin world pass plan run model data ckpt train hf"

# Prints one line for each include that points the wrong way, and a last line "N files".
judge()
{
    (cd "$1" && find libcore plugins apps -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.def' \) 2>/dev/null |
        LC_ALL=C sort | xargs -r awk -v order="$order" '
    function bad(why) { printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, why }
    function exists(path,   line, r) { r = (getline line < path); close(path); return r >= 0 }
    BEGIN { n = split(order, name, " "); for (i = 1; i <= n; i++) rank[name[i]] = i }
    FNR == 1 {
        files++
        split(FILENAME, at, "/")
        kind = at[1] == "libcore" && at[2] == "include" ? "public" : at[1]
        folder = at[2]
        own = FILENAME; sub(/[^\/]*$/, "", own)
        if (kind == "libcore" && !(folder in rank))
            printf "%s:1: libcore/%s has no place in the order of folders\n", FILENAME, folder
    }
    /^[ \t]*#[ \t]*include/ {
        text = $0; sub(/^[ \t]*#[ \t]*include[ \t]*/, "", text)
        if (text !~ /^["<]/) { bad("a computed include hides where it points"); next }
        quoted = substr(text, 1, 1) == "\""
        path = substr(text, 2); sub(/[">].*/, "", path)
        first = path; sub(/\/.*/, "", first)
        if (first == path) first = ""
        if (path ~ /\.\./) bad("leaves its folder by ..")
        else if (first == "tenon" && !quoted) next
        else if (first == "tenon") bad("public headers are written <tenon/...>")
        else if (first in rank) {
            if (kind == "public" || kind == "plugins") bad(kind " may see <tenon/...> only, not libcore/" first)
            else if (!quoted) bad("a header of the core is written \"" path "\"")
            else if (kind == "libcore" && (folder in rank) && rank[first] > rank[folder])
                bad("libcore/" folder " comes before libcore/" first)
        }
        else if (!quoted) next
        else if (kind == "plugins" && first == "streams" && exists("plugins/" path)) next
        else if (kind == "public" || !exists(own path)) bad("not a file of its own folder")
    }
    END { print files + 0 " files" }')
}

# plant FILE INCLUDE EXPECT: a tree with this one include more is judged so: "ok" or a part of the complaint.
plant()
{
    local tree got
    tree=$(mktemp -d) || exit 1
    mkdir -p "$tree"/libcore/{include/tenon,base,graph,plan,train,odd} "$tree"/{plugins/ref,plugins/cpu,plugins/streams,apps/tenon}
    echo '#include <tenon/abi.h>' >"$tree/libcore/train/loop.c"
    for f in libcore/include/tenon/abi libcore/base/log libcore/graph/graph libcore/plan/plan plugins/ref/op plugins/cpu/simd plugins/streams/link \
        apps/tenon/cmd libcore/train/loop; do
        echo '#include <stdint.h>' >"$tree/$f.h"
    done
    echo "$2" >>"$tree/$1"
    got=$(judge "$tree" | grep -v ' files$')
    rm -rf "$tree"
    planted=$((planted + 1))
    case $3 in
    ok) [ -z "$got" ] && return ;;
    *) [ "$(printf '%s\n' "$got" | wc -l)" = 1 ] && [[ $got == "$1:"*"$3"* ]] && return ;;
    esac
    echo "self-test: $1 with $2: expected '$3', got '$got'"
    failed=1
}

prove()
{
    planted=0
    plant libcore/graph/graph.c '#include "base/log.h"' ok
    plant libcore/graph/graph.c '#include "graph/graph.h"' ok
    plant libcore/graph/graph.c '#include "graph.h"' ok
    plant libcore/base/log.c '#include "graph/graph.h"' 'libcore/base comes before libcore/graph'
    plant libcore/plan/plan.h ' #  include "train/loop.h"' 'libcore/plan comes before libcore/train'
    plant libcore/graph/graph.c '#include "../plan/plan.h"' 'leaves its folder'
    plant libcore/graph/graph.c '#include <base/log.h>' 'is written "base/log.h"'
    plant libcore/graph/graph.c '#include "tenon/abi.h"' 'are written <tenon/...>'
    plant libcore/graph/graph.c '#include "ref/op.h"' 'not a file of its own folder'
    plant libcore/train/loop.c '#include "plugins/ref/op.h"' 'not a file of its own folder'
    plant libcore/train/loop.c '#include "cmd.h"' 'not a file of its own folder'
    plant libcore/train/loop.c '#include HEADER' 'computed include'
    plant libcore/odd/x.c '#include <stdio.h>' 'no place in the order'
    plant libcore/include/tenon/abi.h '#include "base/log.h"' 'may see <tenon/...> only'
    plant libcore/include/tenon/abi.h '#include <tenon/device.h>' ok
    plant plugins/ref/plugin.c '#include "op.h"' ok
    plant plugins/ref/plugin.c '#include <cblas.h>' ok
    plant plugins/ref/plugin.c '#include "streams/link.h"' ok
    plant plugins/ref/plugin.c '#include "streams/none.h"' 'not a file of its own folder'
    plant plugins/ref/plugin.c '#include "cpu/simd.h"' 'not a file of its own folder'
    plant apps/tenon/main.c '#include "streams/link.h"' 'not a file of its own folder'
    plant plugins/ref/plugin.c '#include "base/log.h"' 'may see <tenon/...> only'
    plant plugins/ref/plugin.c '#include <base/log.h>' 'may see <tenon/...> only'
    plant plugins/ref/plugin.c '#include "../cpu/simd.h"' 'leaves its folder'
    plant plugins/ref/plugin.c '#include "config.h"' 'not a file of its own folder'
    plant apps/tenon/main.c '#include "train/loop.h"' ok
    plant apps/tenon/main.c '#include "cmd.h"' ok
    plant apps/tenon/main.c '#include "ref/op.h"' 'not a file of its own folder'
}

failed=0
if [ $# -eq 0 ]; then
    prove
    root=${top_srcdir:-$(dirname "$0")/..}
else
    root=$1
fi
found=$(judge "$root")
files=${found##*$'\n'}
[ "${files% files}" -gt 0 ] || { echo "$root has no sources"; exit 1; }
wrong=$(printf '%s\n' "$found" | sed '$d')
[ -z "$wrong" ] || { printf '%s\n' "$wrong"; failed=1; }
echo "include direction: ${planted:-0} planted trees judged, $files looked at"
exit $failed
