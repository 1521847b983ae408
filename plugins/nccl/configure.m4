# NCCL 2.18 or newer: in the CUDA toolkit, in --with-nccl=DIR, NCCL_HOME, or where the compiler looks. Needs plugin cuda's
# toolkit, since it has a kernel of its own.
AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=DIR], [where NCCL is, for plugin nccl])], [], [with_nccl=auto])
NCCL_CFLAGS= NCCL_LIBS=
TN_PLUGIN_SWITCH([nccl], [communicator for NVIDIA GPUs],
[AS_CASE([$with_nccl],
    [no], [tn_missing="--without-nccl"],
    [yes|auto], [tn_nccl_places="$NCCL_HOME $CUDA_ROOT /usr"],
    [tn_nccl_places=$with_nccl])
AS_IF([test -z "$tn_missing" && test "x$tn_cuda_built" != xyes], [tn_missing="plugin cuda is not built"])
AS_IF([test -z "$tn_missing"],
    [AC_MSG_CHECKING([for NCCL])
     for tn_place in $tn_nccl_places none; do
         for NCCL_LIBDIR in $tn_place/lib $tn_place/lib64 $tn_place/lib/x86_64-linux-gnu $tn_place/lib/aarch64-linux-gnu none; do
             test -e $tn_place/include/nccl.h && test -e $NCCL_LIBDIR/libnccl.so && break 2
         done
     done
     AS_IF([test $tn_place = none], [tn_missing="there is no nccl.h with libnccl.so (on Debian: libnccl-dev of NVIDIA; --with-nccl=DIR says where)"],
         [cat >conftest.c <<TN_END
#include <nccl.h>
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error "too old"
#endif
TN_NCCL NCCL_MAJOR.NCCL_MINOR.NCCL_PATCH
TN_END
          NCCL_CFLAGS="-isystem $tn_place/include"
          NCCL_LIBS="-L$NCCL_LIBDIR -Wl,-rpath,$NCCL_LIBDIR -lnccl"
          tn_version=`$CC -E -P -isystem $CUDA_ROOT/include $NCCL_CFLAGS conftest.c 2>&AS_MESSAGE_LOG_FD | sed -n 's/^TN_NCCL //p' | tr -d ' '`
          AS_IF([test -z "$tn_version"], [tn_missing="$tn_place/include/nccl.h is older than 2.18"],
              [tn_found="NCCL $tn_version in $tn_place"])
          rm -f conftest.c])
     AS_IF([test -z "$tn_missing"], [AC_MSG_RESULT([$tn_place])], [AC_MSG_RESULT([no])])])])
AC_SUBST([NCCL_CFLAGS])
AC_SUBST([NCCL_LIBS])
