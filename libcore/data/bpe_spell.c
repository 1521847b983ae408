/* bpe_spell.c - bytes as printable characters, as GPT-2's files have them.
 *
 * The 188 bytes that are printable in Latin-1 are themselves; the other 68, in order, are U+0100 and on. In
 * that order they have ids too, in GPT-2's vocabulary and in those that are trained here. */
#include "data/bpe.h"

#include "data/utf8.h"

#define PRINTABLE 188

static int is_printable(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* How many bytes below c are as printable as it is. */
static unsigned order(unsigned c)
{
    if (c <= 0x20)
        return c;
    if (c <= 0x7E)
        return c - 0x21;
    if (c <= 0xA0)
        return c - 0x7F + 0x21;
    return c < 0xAD ? c - 0xA1 + 94 : c == 0xAD ? 67 : c - 0xAE + 94 + 12;
}

int32_t tn_bpe_byte_id(unsigned char byte)
{
    return (int32_t)(order(byte) + (is_printable(byte) ? 0 : PRINTABLE));
}

size_t tn_bpe_spell(const unsigned char *text, size_t bytes, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        unsigned char c[4];
        unsigned length = tn_utf8_write(is_printable(text[i]) ? text[i] : 0x100 + order(text[i]), c);
        memcpy(out + n, c, length);
        n += length;
    }
    out[n] = 0;
    return n;
}

static int unspell(uint32_t code)
{
    if (code < 0x100)
        return is_printable(code) ? (int)code : -1;
    code -= 0x100;
    return code <= 0x20 ? (int)code : code < 67 ? (int)(code - 0x21 + 0x7F) : code == 67 ? 0xAD : -1;
}

int64_t tn_bpe_unspell(const char *spelled, unsigned char *out)
{
    size_t bytes = strlen(spelled);
    int64_t n = 0;
    uint32_t code;

    for (size_t at = 0; at < bytes; n++) {
        unsigned length = tn_utf8_read((const unsigned char *)spelled + at, bytes - at, &code);
        int byte = length ? unspell(code) : -1;
        if (byte < 0)
            return -1;
        out[n] = (unsigned char)byte;
        at += length;
    }
    return n;
}
