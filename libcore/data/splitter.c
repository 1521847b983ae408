/* splitter.c - see splitter.h: GPT-2's pattern, by PCRE2.
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * \s is spelled out, for PCRE2 counts U+180E as a blank and Unicode no longer does. The pattern is anchored
 * and every character begins some alternative, so a match never scans ahead; no alternative has a group that
 * repeats, so the longest piece needs no stack and gives back one character at most. Where memory may not be
 * made executable there is no JIT, and the same match takes longer. */
#include "data/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#define BLANK                                                                                                \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define PATTERN                                                                                              \
    "'(?:[stmd]|re|ve|ll)"                                                                                   \
    "| ?[A-Za-z\\p{L}]+"                                                                                     \
    "| ?[0-9\\p{N}]+"                                                                                        \
    "| ?[^" BLANK "\\p{L}\\p{N}]+"                                                                           \
    "|[" BLANK "]+(?![^" BLANK "])"                                                                          \
    "|[" BLANK "]+"

struct tn_splitter {
    pcre2_code *code;
    pcre2_match_data *match;
    int jit;
};

static tn_status refuse(int number, const char *what)
{
    char why[128] = "";

    pcre2_get_error_message(number, (PCRE2_UCHAR8 *)why, sizeof why);
    return tn_error(TN_ERR, "PCRE2 cannot %s: %s", what, why);
}

tn_status tn_splitter_new(struct tn_splitter **out)
{
    struct tn_splitter *s = *out = calloc(1, sizeof *s);
    int number;
    PCRE2_SIZE at;

    if (!s)
        return tn_error(TN_ERR_MEMORY, "no memory to split a text");
    s->code = pcre2_compile((PCRE2_SPTR8)PATTERN, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED, &number,
                            &at, NULL);
    s->match = s->code ? pcre2_match_data_create(1, NULL) : NULL;
    if (!s->match) {
        tn_status status = s->code ? tn_error(TN_ERR_MEMORY, "no memory to split a text")
                                   : refuse(number, "take the pattern");
        tn_splitter_free(s);
        *out = NULL;
        return status;
    }
    s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    return TN_OK;
}

void tn_splitter_free(struct tn_splitter *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    pcre2_code_free(s->code);
    free(s);
}

tn_status tn_splitter_next(struct tn_splitter *s, const unsigned char *text, uint64_t bytes, uint64_t at,
                           uint64_t *end)
{
    /* the JIT's entry makes no check of its own: the text is valid, and the pattern was compiled for it */
    int number = s->jit ? pcre2_jit_match(s->code, text, bytes, at, PCRE2_NO_UTF_CHECK, s->match, NULL)
                        : pcre2_match(s->code, text, bytes, at, PCRE2_NO_UTF_CHECK, s->match, NULL);

    if (number < 0)
        return refuse(number, "split a text");
    *end = pcre2_get_ovector_pointer(s->match)[1];
    return TN_OK;
}
