/* splitter_none.c - see splitter.h: a build without PCRE2. */
#include "data/splitter.h"

tn_status tn_splitter_new(struct tn_splitter **out)
{
    *out = NULL;
    return tn_error(TN_ERR_CONFIG,
                    "this tenon was built without PCRE2, which the tokenizers bpe and gpt2 need: "
                    "install it (on Debian: apt-get install libpcre2-dev), then configure and build again");
}

void tn_splitter_free(struct tn_splitter *s)
{
    (void)s;                                     /* there is never one */
}

tn_status tn_splitter_next(struct tn_splitter *s, const unsigned char *text, uint64_t bytes, uint64_t at,
                           uint64_t *end)
{
    (void)text, (void)at;
    *end = bytes;
    return tn_splitter_new(&s);
}
