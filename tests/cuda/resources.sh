#!/bin/bash
# resources.sh - registers and shared memory of every kernel, as ptxas says them; 1 if one spills or has a stack.
#
#   NVCC='nvcc FLAGS' resources.sh FILE.cu...        (make cuda-resources)
# Its own program: it needs nvcc and some minutes, no GPU.
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
failed=0
for file; do
    $NVCC -Xptxas -v -c "$file" -o "$out/k.o" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
    c++filt <"$out/log" | awk -v file="${file##*/}" '
        /Compiling entry function/ { match($0, /'\''.*'\'' for/); name = substr($0, RSTART + 1, RLENGTH - 6)
                                     match($0, /sm_[0-9a-z]+/); arch = substr($0, RSTART, RLENGTH)
                                     sub(/^void /, "", name); sub(/\(.*/, "", name) }
        /bytes stack frame/        { stack = $1; spill = $5 + $9 }
        /Used [0-9]+ registers/    { for (i = 1; i < NF; i++) { if ($i == "Used") regs = $(i + 1)
                                                               if ($(i + 1) ~ /^bytes/ && $(i + 2) ~ /^smem/) smem = $i }
                                     printf "%-16s %-26s %-7s %3d registers %6d bytes shared%s\n", file, name, arch, regs,
                                         smem, stack + spill ? "  SPILLS " spill ", stack " stack : ""
                                     bad += stack + spill > 0; smem = 0 }
        END                        { exit bad > 0 }' || failed=1
done
exit $failed
