#!/bin/bash
# headers.sh - each public header compiles alone, as C11 and as C++17, without a warning.
. "$(dirname "$0")/support/lib.sh"

flags="-fsyntax-only -Wall -Wextra -Werror -I$top_srcdir/libcore/include"
headers=$(cd "$top_srcdir/libcore/include" && echo tenon/*.h)
for header in $headers; do
    echo "#include <$header>" >only.c
    case_ "$header as C"
    run ${CC:-cc} -std=c11 $flags only.c
    expect_rc 0
    command -v "${CXX:-c++}" >/dev/null || continue
    case_ "$header as C++"
    run "${CXX:-c++}" -x c++ -std=c++17 $flags only.c
    expect_rc 0
done
