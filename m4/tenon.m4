# tenon.m4 - the macros of configure.ac: required libraries, plugin switches, compiler switches, the summary.

# TN_REQUIRE(VARIABLE, MODULE, DEBIAN-PACKAGE): pkg-config module that the core cannot do without.
AC_DEFUN([TN_REQUIRE],
[PKG_CHECK_MODULES([$1], [$2], [],
    [AC_MSG_ERROR([$2 was not found by pkg-config; on Debian: apt-get install $3])])])

# TN_OPTIONAL(NAME, VARIABLE, MODULE, DEBIAN-PACKAGE, WHAT FOR): --enable-NAME=auto|yes|no, a library that the core can do
# without, and the conditional HAVE_VARIABLE. The summary has a line for it.
AC_DEFUN([TN_OPTIONAL],
[AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1=auto|yes|no], [$5])], [], [enable_$1=auto])
tn_build=no tn_why=
AS_CASE([$enable_$1],
    [no], [tn_why="--disable-$1"],
    [auto|yes],
        [PKG_CHECK_MODULES([$2], [$3], [tn_build=yes],
            [tn_why="no $3; on Debian: apt-get install $4"
             AS_IF([test "$enable_$1" = yes], [AC_MSG_ERROR([--enable-$1=yes, but $tn_why])])])],
    [AC_MSG_ERROR([--enable-$1=$enable_$1: must be auto, yes or no])])
AM_CONDITIONAL([HAVE_$2], [test $tn_build = yes])
AC_SUBST([HAVE_$2], [$tn_build])
AS_VAR_APPEND([tn_option_lines], ["`printf '  %-10s %s' $1 "$tn_build, for $5${tn_why:+ ($tn_why)}"`
"])])

# The compiler's warnings; --enable-werror makes them errors.
AC_DEFUN([TN_WARNINGS],
[AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [warnings are errors])], [], [enable_werror=no])
WARNING_CFLAGS="-Wall -Wextra -Wshadow -Wmissing-prototypes"
AS_IF([test "x$enable_werror" = xyes], [WARNING_CFLAGS="$WARNING_CFLAGS -Werror"])
AC_SUBST([WARNING_CFLAGS])])

# --enable-sanitizers=LIST, as the compiler's -fsanitize takes it. A shared object then has undefined symbols
# of the sanitizer's runtime with some compilers, so plugins are linked without -z defs.
AC_DEFUN([TN_SANITIZERS],
[AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST], [build with -fsanitize=LIST: address,undefined or thread])],
    [], [enable_sanitizers=no])
AS_CASE([$enable_sanitizers],
    [no], [SANITIZER_FLAGS=; PLUGIN_DEFS_FLAG=-Wl,-z,defs],
    [AS_IF([test "x$enable_sanitizers" = xyes], [enable_sanitizers=address,undefined])
     SANITIZER_FLAGS="-fsanitize=$enable_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
     PLUGIN_DEFS_FLAG=
     AC_MSG_CHECKING([whether $CC links with -fsanitize=$enable_sanitizers])
     tn_saved_CFLAGS=$CFLAGS
     CFLAGS="$CFLAGS $SANITIZER_FLAGS"
     AC_LINK_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])],
         [AC_MSG_RESULT([no])
          AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers: $CC cannot link such a program])])
     CFLAGS=$tn_saved_CFLAGS])
AC_SUBST([SANITIZER_FLAGS])
AC_SUBST([PLUGIN_DEFS_FLAG])])

# --enable-debug: TN_DEBUG, for checks that cost time: a counter of allocations, which a step may not make.
AC_DEFUN([TN_DEBUG_SWITCH],
[AC_ARG_ENABLE([debug],
    [AS_HELP_STRING([--enable-debug], [count allocations and end at one inside a step])],
    [], [enable_debug=no])
AS_IF([test "x$enable_debug" = xyes], [DEBUG_CPPFLAGS=-DTN_DEBUG], [DEBUG_CPPFLAGS=])
AC_SUBST([DEBUG_CPPFLAGS])])

# TN_PLUGINS(NAMES): the switches of these plugins, each from plugins/NAME/configure.m4, in this order.
AC_DEFUN([TN_PLUGINS],
[tn_plugin_lines=
m4_foreach_w([tn_plugin], [$1], [m4_include([plugins/]tn_plugin[/configure.m4])])])

# TN_PLUGIN_SWITCH(NAME, WHAT IT IS, [CHECK]): --enable-NAME=auto|yes|no and the conditional PLUGIN_<NAME>.
# CHECK runs unless the answer is no. It sets tn_missing to what is not here, naming the package to install, or
# leaves it empty; what it found it may say in tn_found.
AC_DEFUN([TN_PLUGIN_SWITCH],
[AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1=auto|yes|no], [plugin $1: $2])], [], [enable_$1=auto])
tn_missing= tn_found=
AS_CASE([$enable_$1],
    [no], [tn_build=no tn_why="--disable-$1"],
    [auto|yes],
        [$3
         AS_IF([test -z "$tn_missing"], [tn_build=yes tn_why=$tn_found],
               [test "$enable_$1" = yes], [AC_MSG_ERROR([--enable-$1=yes, but $tn_missing])],
               [tn_build=no tn_why=$tn_missing])],
    [AC_MSG_ERROR([--enable-$1=$enable_$1: must be auto, yes or no])])
AM_CONDITIONAL([PLUGIN_]m4_toupper([$1]), [test $tn_build = yes])
AS_VAR_APPEND([tn_plugin_lines], ["`printf '  %-10s %s' $1 "$tn_build${tn_why:+ ($tn_why)}"`
"])])

AC_DEFUN([TN_SUMMARY],
[AS_CASE([$enable_debug], [yes], [tn_debug=yes], [tn_debug=no])
test "x$silent" = xyes || cat <<TN_END

tenon $PACKAGE_VERSION
  prefix     $prefix
  compiler   $CC $CFLAGS
  sanitizers $enable_sanitizers
  debug      $tn_debug
  unit tests $have_check`test $have_check = yes || echo " (no check.pc; on Debian: apt-get install check)"`
${tn_option_lines}plugins
$tn_plugin_lines
TN_END])
