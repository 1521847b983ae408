#!/bin/bash
# tsan.sh - the emulated kernels under the thread sanitizer, and whether it finds a barrier that is taken out.
#
# Its own program: it compiles the kernels once more, with little optimization. The emulation and the test are compiled without the
# sanitizer: only what kernels touch is watched. Skipped where the compiler has no thread sanitizer, or ref is under another.
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
: "${CC:=gcc}" "${CXX:=g++}"
SRC=${top_srcdir:-.}
cd "${top_builddir:-.}" || exit 1
[ -f plugins/ref/.libs/ref.so ] || exit 77
grep -q __asan_init plugins/ref/.libs/ref.so && exit 77
echo 'int main() { return 0; }' >"$out/none.cpp"
$CXX -fsanitize=thread -o "$out/none" "$out/none.cpp" 2>"$out/log" && "$out/none" || exit 77
include="-D_GNU_SOURCE -I$SRC/libcore/include -I$SRC/plugins/cuda -I$SRC/apps/tenon/check"
cuda=$SRC/plugins/cuda
conformance=$SRC/apps/tenon/check

kernel() # FILE.cu OBJECT
{
    $CXX -std=c++17 -O1 -g -Wno-unknown-pragmas -fsanitize=thread -DTN_CUDA_EMULATED -DTN_CUDA_SMALL $include -include "$SRC/tests/cuda/emu.h" \
        -x c++ -c "$1" -o "$2"
}

for file in "$cuda"/*.cu; do
    name=${file##*/}
    kernel "$file" "$out/${name%.cu}.o" || exit 1
done
$CXX -std=c++17 -O2 -DTN_EMU_TSAN $include -c "$SRC/tests/cuda/emu.cpp" -o "$out/emu.o" || exit 1
for file in "$cuda"/{nest,program,epilogue,ops,source}.c "$SRC/tests/cuda/test_tsan.c" \
    "$conformance"/{conform,bench,build,memory,launch,number,remote,program}.c "$SRC/tests/conformance/host.c"; do
    $CC -std=c11 -O2 $include -c "$file" -o "$out/$(basename "$(dirname "$file")")-$(basename "$file" .c).o" || exit 1
done
link() { $CXX -fsanitize=thread -o "$out/test" "$out"/*.o -ldl -lpthread -lm; }
link && "$out/test" || { echo "tsan.sh: the kernels as they are: status $?"; exit 1; }

# The same with a fault: no barrier between the warps' partial results and who adds them.
sed '/k.partial\[(int64_t)part/!s/^            warp\[threadIdx.x \/ 32\] = v;$/&\/\/ fault/; /\/\/ fault/{n;d}' "$cuda/reduce.cu" >"$out/fault.cu"
if cmp -s "$cuda/reduce.cu" "$out/fault.cu"; then echo "tsan.sh: found no barrier to take out"; exit 1; fi
kernel "$out/fault.cu" "$out/reduce.o" && link || exit 1
"$out/test" >"$out/log" 2>&1 && { echo "tsan.sh: a missing barrier was not found"; exit 1; }
grep -m1 'WARNING: ThreadSanitizer: data race' "$out/log" || { cat "$out/log"; exit 1; }
grep -m2 'fault.cu:' "$out/log"
