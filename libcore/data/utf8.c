/* utf8.c - see utf8.h. One table row per length; the rules are those of Unicode's table 3-7. */
#include "data/utf8.h"

/* The length that a first byte announces; 0 for a byte that starts nothing. */
static unsigned announced(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)                    /* continuation, overlong, above U+10FFFF */
        return 0;
    return c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/* Second bytes are the only ones with rules of their own. */
static int second_ok(unsigned char first, unsigned char second)
{
    unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high;
}

/* How many of the bytes fit the sequence that the first one announces. */
static size_t fitting(const unsigned char *text, size_t bytes, unsigned length)
{
    size_t n = 1;

    while (n < length && n < bytes && (n == 1 ? second_ok(text[0], text[1]) : (text[n] & 0xC0) == 0x80))
        n++;
    return n;
}

unsigned tn_utf8_read(const unsigned char *text, size_t bytes, uint32_t *code)
{
    static const unsigned char mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    unsigned length = bytes > 0 ? announced(text[0]) : 0;

    if (length == 0 || fitting(text, bytes, length) != length)
        return 0;
    *code = text[0] & mask[length];
    for (unsigned i = 1; i < length; i++)
        *code = *code << 6 | (text[i] & 0x3Fu);
    return length;
}

size_t tn_utf8_whole(const unsigned char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        const unsigned char *tail = text + bytes - back;
        unsigned length = announced(*tail);
        if (back < length && fitting(tail, back, length) == back)
            return bytes - back;
    }
    return bytes;
}

unsigned tn_utf8_write(uint32_t code, unsigned char out[4])
{
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    unsigned length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (unsigned i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (unsigned char)(0x80 | (code & 0x3F));
    out[0] = (unsigned char)(lead[length] | code);
    return length;
}

size_t tn_utf8_check(const unsigned char *text, size_t bytes)
{
    size_t at = 0;
    uint32_t code;

    while (at < bytes) {
        unsigned n = text[at] < 0x80 ? 1 : tn_utf8_read(text + at, bytes - at, &code);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}
