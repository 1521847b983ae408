/* plain.c - see plain.h. One walk over the bytes: how long is what stands here, 0 if it must not stand. */
#include "base/plain.h"

#include <stdint.h>

/* Bytes of the character that begins here, 0 if none does: shortest form, no surrogate, up to U+10FFFF. */
static size_t decode(const unsigned char *s, uint32_t *code)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } form[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

    for (size_t n = 1; n <= 4; n++) {
        if ((s[0] & form[n - 1].mask) != form[n - 1].lead)
            continue;
        *code = s[0] & (unsigned char)~form[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((s[i] & 0xc0) != 0x80)           /* the end of the text is none either */
                return 0;
            *code = *code << 6 | (s[i] & 0x3f);
        }
        return *code < form[n - 1].least || (*code >= 0xd800 && *code < 0xe000) || *code > 0x10ffff ? 0 : n;
    }
    return 0;
}

static int is_seen(uint32_t c)
{
    return c >= 32 && !(c >= 0x7f && c < 0xa0) &&            /* controls, old and new */
           !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069) && c != 0x200e && c != 0x200f;
}

static size_t length(const char *at, int newlines)
{
    uint32_t code = 0;
    size_t n;

    if (newlines && *at == '\n')
        return 1;
    n = decode((const unsigned char *)at, &code);
    return is_seen(code) ? n : 0;
}

void tn_plain(char *text, int newlines)
{
    for (size_t n; *text; text += n ? n : 1)
        if (!(n = length(text, newlines)))
            *text = (unsigned char)*text < 32 ? ' ' : '?';
}

int tn_is_plain(const char *text, int newlines)
{
    for (size_t n; *text; text += n)
        if (!(n = length(text, newlines)))
            return 0;
    return 1;
}

void tn_plain_field(char *text, size_t room)
{
    text[room - 1] = 0;
    tn_plain(text, 0);
}
