# CBLAS: the header, and the first library that has the matrix product.
TN_PLUGIN_SWITCH([cpu], [fast kernels, CBLAS and threads],
[AC_CHECK_HEADER([cblas.h], [], [tn_missing="there is no cblas.h (on Debian: apt-get install libopenblas-dev)"])
AS_IF([test -z "$tn_missing"],
    [tn_saved_LIBS=$LIBS
     AC_SEARCH_LIBS([cblas_sgemm], [openblas cblas blas], [],
         [tn_missing="no library has cblas_sgemm (on Debian: apt-get install libopenblas-dev)"])
     LIBS=$tn_saved_LIBS
     AS_CASE([$ac_cv_search_cblas_sgemm], [no], [], ["none required"], [CBLAS_LIBS= tn_found="CBLAS of the C library"],
         [CBLAS_LIBS=$ac_cv_search_cblas_sgemm tn_found="CBLAS by $CBLAS_LIBS"])])])
AC_SUBST([CBLAS_LIBS])

# The levels of x86-64 that one plugin holds; elsewhere it holds one, compiled as the compiler likes.
AC_MSG_CHECKING([whether the cpu plugin holds the levels of x86-64])
tn_saved_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -march=x86-64-v4"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#ifndef __x86_64__
#error another machine
#endif]], [[return !__builtin_cpu_supports("avx512vl");]])], [tn_cpu_x86=yes], [tn_cpu_x86=no])
CFLAGS=$tn_saved_CFLAGS
AC_MSG_RESULT([$tn_cpu_x86])
AM_CONDITIONAL([CPU_X86], [test $tn_cpu_x86 = yes])

# gcc's -O2 vectorises only what cannot lose; clang has no such flag and needs none.
AC_MSG_CHECKING([whether $CC takes -fvect-cost-model=dynamic])
CFLAGS="$CFLAGS -fvect-cost-model=dynamic"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [CPU_VECTOR_FLAGS=-fvect-cost-model=dynamic tn_takes=yes],
    [CPU_VECTOR_FLAGS=-Wno-pass-failed tn_takes=no])
CFLAGS=$tn_saved_CFLAGS
AC_MSG_RESULT([$tn_takes])
AC_SUBST([CPU_VECTOR_FLAGS])
