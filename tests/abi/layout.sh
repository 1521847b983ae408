#!/bin/bash
# layout.sh - the public structs are where plugins of this level expect them, without implicit padding, and this
# check notices when they are not.
. "$(dirname "$0")/../support/lib.sh"

flags="-std=c11 -fsyntax-only -Wall -Werror"
${CC:-cc} -Wpadded -fsyntax-only -x c /dev/null 2>/dev/null && flags="$flags -Wpadded"
include=$top_srcdir/libcore/include

# Compiles offsets.c against headers with one line changed by sed.
changed()
{
    rm -rf include
    cp -R "$include" include
    chmod -R u+w include
    sed -i "$2" "include/tenon/$1"
    run ${CC:-cc} $flags -Iinclude "$top_srcdir/tests/abi/offsets.c"
}

case_ "as it is"
changed abi.h ''
expect_rc 0

case_ "every struct of the headers is listed"
headers=$(cd "$include" && echo tenon/{abi,bootstrap,comm,device,kernels,optimizer,pass}.h)
for struct in $(cd "$include" && sed -n 's/^struct \(tn_[a-z_]*\) {.*/\1/p' $headers); do
    run grep -Ec "^(SIZE|FROZEN)\($struct, " "$top_srcdir/tests/abi/offsets.c"
    expect_out '^1$'
done

case_ "a member in between"
changed comm.h 's/^    void (\*abort).*/    void (*other)(void);\n&/'
expect_rc 1
expect_err 'offset of tn_comm_api.abort'

case_ "a member at the end"
changed optimizer.h 's/^    void (\*build).*/&\n    void (*other)(void);/'
expect_rc 1
expect_err 'size of tn_optimizer'

case_ "another width"
changed kernels.h 's/^    uint16_t op, a, b, c;/    uint32_t op, a, b, c;/'
expect_rc 1
expect_err 'size of tn_instr'

case_ "padding"
changed abi.h 's/^    uint32_t reserved0;$//'
expect_rc 1
expect_err 'padding'
