#!/bin/bash
# reference.sh - every function and member of the public headers says what it is, and the pages made of that are whole.
. "$(dirname "$0")/../support/lib.sh"
reference="${AWK:-awk} -f $top_srcdir/docs/reference.awk"
headers=$(echo "$top_srcdir"/libcore/include/tenon/*.h)

for header in $headers; do
    name=$(basename "$header" .h)
    case_ "$name.h: all has a comment"
    run $reference -v form=check "$header"
    expect_rc 0
    expect test -z "$out"

    case_ "$name.h: a page of the manual"
    run $reference -v form=man -v version=0 "$header"
    expect_rc 0
    expect_out "^\.SH NAME$"
    expect_out "tenon/$name\.h>"
    for function in $(sed -n 's/^TN_\(CALL\|KIT\) [^(]*[ *]\(tn_[a-z_0-9]*\)(.*/\2/p' "$header"); do
        expect grep -qF -- "$function(" <<<"$out"
    done
    for struct in $(sed -n 's/^struct \(tn_[a-z_]*\) {.*/\1/p' "$header"); do
        expect_out "^\.SS struct $struct$"
    done

    case_ "$name.h: it is listed where pages are made"
    expect grep -q "tenon-$name\.3" "$top_srcdir/docs/man.am"
    expect grep -q "/tenon/$name\.h" "$top_srcdir/libcore/local.am"
done

# The check finds what lacks one.
case_ "a function without a comment, a member, a pointer to a function"
cat >lacks.h <<'END'
/* lacks.h - of its kind. */
#ifndef LACKS_H
#define LACKS_H

/* It has one. */
struct said {
    uint32_t struct_size;
    uint32_t bare;
    uint32_t good;                               /* says so */
    void (*call)(void);
    void (*fine)(void);                          /* says so */
};

static inline int alone(void)
{
    return 0;
}

/* Has one. */
static inline int told(void)
{
    return 0;
}
#endif
END
run $reference -v form=check lacks.h
expect test "$out" = "lacks.h:8: said.bare has no comment
lacks.h:10: said.call has no comment
lacks.h:15: alone has no comment"

case_ "troff takes them"
if command -v groff >/dev/null; then
    for header in $headers; do
        $reference -v form=man -v version=0 "$header" >page.3
        run groff -man -Tutf8 -ww -Kutf8 page.3
        expect_rc 0
        expect test -z "$err"
    done
fi
