#!/bin/bash
# keep.sh - makes the plugins that are kept of the level of the public headers: tests/abi/keep.sh [LEVEL-FOLDER]
#
# Into tests/abi/kept/level-N go the headers, their sizes and offsets, the sources and what was built of them: at least one plugin of each kind,
# x86-64, stripped. tests/abi/kept.sh runs the binaries with every later build. While level N is a candidate this is run
# again whenever the headers change; once N is released, an empty file RELEASED in its folder says that it is never touched
# again, and N + 1 gets its own.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
level=$(sed -n 's/^#define TN_ABI \([0-9]*\).*/\1/p' "$top/libcore/include/tenon/abi.h")
to=${1:-$top/tests/abi/kept/level-$level}
[ ! -e "$to/RELEASED" ] || { echo "$to is of a released level and stays as it is" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || { echo "kept plugins are for x86-64" >&2; exit 1; }

rm -rf "$to"
mkdir -p "$to/headers/tenon"
cp "$top"/libcore/include/tenon/*.h "$to/headers/tenon/"
rm -f "$to"/headers/tenon/kit_*.h                # help for authors, not the border
cp "$top/plugins/plugin.map" "$top/tests/abi/offsets.c" "$to/"

# keep NAME FILE...: the plugin of these sources
keep()
{
    local name=$1

    shift
    mkdir -p "$to/sources/$name"
    cp "$@" "$to/sources/$name/"
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -s -fPIC -shared -fvisibility=hidden -I"$to/headers" \
        -o "$to/$name.so" "$to/sources/$name"/*.c -Wl,--version-script="$to/plugin.map" -Wl,-z,defs -Wl,--build-id \
        -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,--gc-sections -lm -lpthread
    chmod 644 "$to/$name.so"
}

cd "$top"
for name in sgd adamw ddp shard tp cp pp env; do
    files=(plugins/$name/*.c)
    for header in plugins/$name/*.h; do [ ! -e "$header" ] || files+=("$header"); done
    keep $name "${files[@]}"
done
keep toykernels tests/abi/outside/toykernels.c
keep isle tests/isle/{attention,kernel,nest,plugin,queue,record,sea,table}.c tests/isle/isle.h
keep post tests/abi/keep/post.c
{
    echo "level $level, built by ${CC:-cc}: $(${CC:-cc} --version | head -n 1)"
    (cd "$to" && sha256sum -- *.so)
} >"$to/MADE"
cat "$to/MADE"
