#!/bin/bash
# install.sh - what `make install` puts where, that a plugin can be built against nothing but that, with the command
# that README gives, and that `make uninstall` leaves nothing.
. "$(dirname "$0")/support/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR
command -v pkg-config >/dev/null || skip "no pkg-config"

case_ "make install"
run make -C "$top_builddir" --no-print-directory install DESTDIR="$tmp/dest"
expect_rc 0
pc=$(find dest -name tenon.pc)
expect test -n "$pc"
export PKG_CONFIG_PATH=$tmp/${pc%/*} PKG_CONFIG_SYSROOT_DIR=$tmp/dest
plugindir=$tmp/dest$(pkg-config --variable=plugindir tenon | sed "s#^$tmp/dest##")
include=$(pkg-config --cflags-only-I tenon | sed 's/^-I//; s/ *$//')
expect_file "$include/tenon/abi.h"
expect test "$(find dest -type f -perm -u+x -name tenon | wc -l)" = 1
for plugin in "$top_builddir"/plugins/*/.libs/*.so; do
    [ ! -e "$plugin" ] || expect_file "$plugindir/${plugin##*/}"
done
case_ "only plugins among the plugins"
expect test -z "$(find "$plugindir" -type f ! -name '*.so' 2>/dev/null)"

case_ "README's command builds a plugin"
cp "$top_srcdir/tests/toys/halving.c" mine.c
line=$(sed -n 's/^gcc \(.*pkg-config --cflags tenon.*\)$/\1/p' "$top_srcdir/README.md")
expect test -n "$line"
run bash -c "${CC:-cc} -Wall -Wextra -Werror $line"
expect_rc 0
expect_file mine.so
run nm -D mine.so
expect_out ' T tn_plugin_entry$'
expect_not_out ' U tn_'

case_ "make uninstall"
run make -C "$top_builddir" --no-print-directory uninstall DESTDIR="$tmp/dest"
expect_rc 0
expect test -z "$(find dest -type f -o -type l)"
