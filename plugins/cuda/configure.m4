# CUDA: nvcc, which must take what the kernels use, and the libraries' headers. Where it is: --with-cuda=DIR, else CUDA_HOME,
# the PATH, /usr/local/cuda. No GPU and no driver are needed to build.
#
# cuDNN's header, beside the toolkit's or among the system's; the library itself is looked for when the plugin runs.
AC_DEFUN([TN_CUDNN],
[AC_MSG_CHECKING([for cuDNN's header])
tn_saved_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS -isystem $CUDA_ROOT/include"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cudnn.h>]],
        [[return CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP == CUDNN_ATTR_ENGINEHEUR_DEVICEPROP;]])],
    [tn_cudnn=yes tn_found="$tn_found, with cuDNN for attention"],
    [tn_cudnn=no tn_found="$tn_found; without a cudnn.h that is new enough, so attention is by the own kernel"])
CPPFLAGS=$tn_saved_CPPFLAGS
AC_MSG_RESULT([$tn_cudnn])])
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [the CUDA toolkit, for plugin cuda])], [], [with_cuda=auto])
AC_ARG_VAR([NVCC], [compiler of the kernels for NVIDIA GPUs])
AC_ARG_VAR([NVCCFLAGS], [its flags])
AC_ARG_VAR([CUDA_GENCODE], [the GPUs to compile for])
: ${NVCCFLAGS="-O3 -lineinfo"}
: ${CUDA_GENCODE="-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=[[sm_80,compute_80]]"}
AS_CASE([$with_cuda],
    [no], [AS_IF([test "x$enable_cuda" = xyes], [AC_MSG_ERROR([--enable-cuda=yes and --without-cuda])])
           enable_cuda=no],
    [yes|auto], [tn_cuda_places="$CUDA_HOME /usr/local/cuda"],
    [tn_cuda_places=$with_cuda
     AS_IF([test -z "$enable_cuda"], [enable_cuda=yes])])
TN_PLUGIN_SWITCH([cuda], [NVIDIA GPUs, device and kernels],
[AS_IF([test -z "$NVCC"],
    [for tn_place in $tn_cuda_places; do
         AS_IF([test -x "$tn_place/bin/nvcc"], [NVCC=$tn_place/bin/nvcc; break])
     done
     AS_IF([test -z "$NVCC" && test "x$with_cuda" = xauto], [AC_PATH_PROG([NVCC], [nvcc])])])
AC_MSG_CHECKING([for the CUDA toolkit])
AS_IF([test -z "$NVCC"], [AS_CASE([$with_cuda],
     [yes|auto], [tn_missing="there is no nvcc (CUDA toolkit 12.1 or newer; --with-cuda=DIR says where)"],
     [tn_missing="there is no $with_cuda/bin/nvcc (--with-cuda)"])],
    [tn_nvcc=`readlink -f "$(command -v $NVCC)"`
     CUDA_ROOT=`dirname "$(dirname "$tn_nvcc")"`
     for CUDA_LIBDIR in $CUDA_ROOT/lib64 $CUDA_ROOT/lib $CUDA_ROOT/targets/*/lib none; do
         test -e $CUDA_LIBDIR/libcudart.so && break
     done
     cat >conftest.cu <<'TN_END'
#include <cublasLt.h>
struct large { char bytes[[20000]]; };
__global__ void kernel(const __grid_constant__ large x, char *y) { *y = x.bytes[[3]]; }
TN_END
     AS_IF([test $CUDA_LIBDIR = none], [tn_missing="$CUDA_ROOT has no libcudart.so"],
         [$NVCC -std=c++17 $CUDA_GENCODE -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1], [],
         [tn_missing="$NVCC does not compile what the kernels need (config.log; CUDA toolkit 12.1 or newer, with cuBLAS)"])
     rm -f conftest.cu conftest.o])
AS_IF([test -z "$tn_missing"], [AC_MSG_RESULT([$CUDA_ROOT])
     tn_found="`$NVCC --version | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/CUDA \1/p'` in $CUDA_ROOT"
     TN_CUDNN],
    [AC_MSG_RESULT([no])])])
tn_cuda_built=$tn_build
AC_SUBST([CUDA_ROOT])
AC_SUBST([CUDA_LIBDIR])
AM_CONDITIONAL([CUDA_DNN], [test "x$tn_cudnn" = xyes])

# The same kernels, emulated on the host for the tests: a compiler of C++17, under the address sanitizer if it has one.
AC_LANG_PUSH([C++])
tn_saved_CXXFLAGS=$CXXFLAGS
CXXFLAGS="$CXXFLAGS -std=c++17"
AC_MSG_CHECKING([whether $CXX compiles C++17 and numbers of 16 bits])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <type_traits>
template <class... A> int sum(A... a) { return (a + ... + 0); }]],
        [[_Float16 h = (_Float16)1.5f; if constexpr (sizeof h == 2) return sum(1, 2); return 0;]])],
    [tn_cuda_emulated=yes], [tn_cuda_emulated=no])
AC_MSG_RESULT([$tn_cuda_emulated])
AC_MSG_CHECKING([what the emulated kernels are watched by])
EMU_SANITIZER=$SANITIZER_FLAGS
AS_IF([test -z "$EMU_SANITIZER"],
    [CXXFLAGS="$CXXFLAGS -fsanitize=address"
     AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <sanitizer/common_interface_defs.h>]],
             [[__sanitizer_start_switch_fiber(0, 0, 0);]])],
         [EMU_SANITIZER="-fsanitize=address -fno-omit-frame-pointer"])])
AC_MSG_RESULT([${EMU_SANITIZER:-nothing}])
CXXFLAGS=$tn_saved_CXXFLAGS
AC_LANG_POP([C++])
AC_SUBST([EMU_SANITIZER])
AM_CONDITIONAL([CUDA_EMULATED], [test $tn_cuda_emulated = yes])

# Fakes of the libraries, on which the plugins run without a GPU (tests/cuda/fake): for the version whose names they have.
AM_CONDITIONAL([CUDA_FAKES], [test $tn_build = yes && test $tn_cuda_emulated = yes && test -z "$SANITIZER_FLAGS" &&
    "$NVCC" --version | grep 'release 13\.' >/dev/null])
