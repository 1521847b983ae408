# Gloo is C++: its header and library, and a compiler that can use them. Without one, configure goes on in C alone.
TN_PLUGIN_SWITCH([gloo], [communicator, shared memory within a host, TCP between hosts],
[AC_LANG_PUSH([C++])
tn_saved_LIBS=$LIBS
tn_saved_CXXFLAGS=$CXXFLAGS
CXXFLAGS="$CXXFLAGS -std=c++14"
AC_MSG_CHECKING([whether $CXX compiles C++14])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <memory>]], [[auto p = std::make_unique<int>(1); return *p - 1;]])],
    [AC_MSG_RESULT([yes])
     LIBS="-lgloo $LIBS"
     AC_MSG_CHECKING([for Gloo])
     AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <gloo/transport/tcp/device.h>]],
             [[gloo::transport::tcp::attr a("127.0.0.1"); return !gloo::transport::tcp::CreateDevice(a);]])],
         [AC_MSG_RESULT([yes])],
         [AC_MSG_RESULT([no])
          tn_missing="there is no gloo/transport/tcp/device.h with -lgloo (on Debian: apt-get install libgloo-dev)"])],
    [AC_MSG_RESULT([no])
     tn_missing="there is no C++ compiler (on Debian: apt-get install g++)"])
LIBS=$tn_saved_LIBS
CXXFLAGS=$tn_saved_CXXFLAGS
AC_LANG_POP([C++])])
AS_IF([test "x$enable_werror" = xyes], [GLOO_CXXFLAGS="-Wall -Wextra -Wshadow -Werror"], [GLOO_CXXFLAGS="-Wall -Wextra -Wshadow"])
AC_SUBST([GLOO_CXXFLAGS])
