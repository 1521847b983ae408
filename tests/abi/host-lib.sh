# host-lib.sh - for shell tests, after lib.sh: the program built again, by another compiler or from changed sources.

# Is the program built with a sanitizer? Its plugins then load in no other program.
sanitized()
{
    grep -aqE '__(asan|tsan)_init|__ubsan_handle' "$TENON"
}

# host_sources FOLDER: copies of all sources of the core and the program, as the build lists them.
host_sources()
{
    local to=$1 file

    command -v make >/dev/null || skip "there is no make"
    [ -f "$top_builddir/config.status" ] || skip "$top_builddir is no build tree"
    mkdir -p "$to"
    printf 'include Makefile\nsay-sources:\n\t@echo $(libcore_libtenon_la_SOURCES) $(apps_tenon_tenon_SOURCES) $(nodist_apps_tenon_tenon_SOURCES)\nsay-libs:\n\t@echo $(core_libs)\n' >"$to/say.mk"
    MAKEFLAGS='' MFLAGS='' MAKELEVEL='' make -s -C "$top_builddir" -f "$(realpath "$to/say.mk")" say-sources | tr ' ' '\n' |
        grep '\.[ch]$' | sort -u >"$to/sources"
    MAKEFLAGS='' MFLAGS='' MAKELEVEL='' make -s -C "$top_builddir" -f "$(realpath "$to/say.mk")" say-libs | tail -n 1 >"$to/libs"
    [ "$(grep -c '\.c$' "$to/sources")" -gt 100 ] || fail "the build lists only $(grep -c '\.c$' "$to/sources") sources"
    for file in $(cat "$to/sources"); do
        mkdir -p "$to/$(dirname "$file")"
        if [ -e "$top_srcdir/$file" ]; then cp "$top_srcdir/$file" "$to/$file"; else cp "$top_builddir/$file" "$to/$file"; fi
    done
    mkdir -p "$to/libcore/include"
    cp -R "$top_srcdir/libcore/include/tenon" "$to/libcore/include/"
    chmod -R u+w "$to"
}

# host_build FOLDER COMPILER...: FOLDER/tenon. What it finds without being told is the build tree's plugins.
host_build()
{
    local to=$1 failed=0 out

    shift
    out=$(cd "$to" && grep '\.c$' sources | xargs -P 2 -n 12 sh -c 'for f in "$@"; do
            out=$(echo "$f" | tr / _).o
            '"$*"' -std=c11 -D_GNU_SOURCE -DTN_VERSION="\"other\"" -DTN_PLUGINDIR="\"/nowhere\"" -I. -Ilibcore/include -Ilibcore -Iapps/tenon \
                -Wno-unused-result -c "$f" -o "$out" || exit 255
        done' compile 2>&1) || failed=1
    [ $failed = 0 ] && out=$(cd "$to" && "$@" -o tenon *.o $(cat libs) -lm -ldl -lpthread 2>&1) || failed=1
    expect [ $failed = 0 ]
    [ $failed = 0 ] || printf '%s\n' "$out" | head -n 20
}

# The folders of the plugins that were just built, for TENON_PLUGIN_PATH.
built_plugins()
{
    local list=""

    for libs in "$top_builddir"/plugins/*/.libs; do
        list=$list${list:+:}$libs
    done
    echo "$list"
}
