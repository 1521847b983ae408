/* pieces.c - see splitter.h: the pieces of a text of any bytes, and where a text may be cut.
 *
 * A cut lies before a blank that follows something that is no blank. A piece that has a blank anywhere but at
 * its beginning is made of blanks alone, so a piece begins there; and no piece before it looks further: what
 * is greedy ends at a blank as it ends at the end. */
#include "data/splitter.h"

#include "data/utf8.h"

tn_status tn_pieces_next(struct tn_pieces *p, const unsigned char **piece, uint64_t *bytes)
{
    uint64_t begin = p->at;
    uint32_t code;
    tn_status s = TN_OK;

    if (begin >= p->bytes)
        return TN_DECLINED;
    if (begin >= p->valid)
        p->valid = begin + tn_utf8_check(p->text + begin, p->bytes - begin);
    if (begin < p->valid)
        s = tn_splitter_next(p->splitter, p->text, p->valid, begin, &p->at);
    else
        do
            p->at++;
        while (p->at < p->bytes && !tn_utf8_read(p->text + p->at, p->bytes - p->at, &code));
    *piece = p->text + begin;
    *bytes = p->at - begin;
    return s;
}

/* The White_Space of Unicode. */
static int is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

/* Does a whole character that is no blank end at this place, which is above 0? */
static int follows_mark(const unsigned char *text, uint64_t at)
{
    uint64_t begin = at - 1;
    uint32_t code;

    while (begin > 0 && at - begin < 4 && (text[begin] & 0xC0) == 0x80)
        begin--;
    return tn_utf8_read(text + begin, at - begin, &code) == at - begin && !is_blank(code);
}

uint64_t tn_pieces_cut(const unsigned char *text, uint64_t bytes)
{
    for (uint64_t at = bytes; at-- > 1;)
        if ((text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r')) && follows_mark(text, at))
            return at;
    return 0;
}

uint64_t tn_pieces_document(const unsigned char *text, uint64_t bytes, uint64_t at)
{
    const unsigned char *found = memmem(text + at, bytes - at, TN_END_OF_TEXT, sizeof TN_END_OF_TEXT - 1);

    return found ? (uint64_t)(found - text) : bytes;
}
