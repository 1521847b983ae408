/* utf8.h - code points in and out of bytes, strictly.
 *
 * Overlong forms, surrogates and what lies above U+10FFFF are invalid, as Unicode says: so every text has one
 * spelling, and encode and decode are each other's inverse. */
#ifndef TN_DATA_UTF8_H
#define TN_DATA_UTF8_H
#include <stddef.h>
#include <stdint.h>

#define TN_CODEPOINTS 0x110000u

/* Length in bytes of the sequence at text, 1 to 4, and its code point; 0 if it is not a whole valid one. */
unsigned tn_utf8_read(const unsigned char *text, size_t bytes, uint32_t *code);

/* How many bytes there are before a sequence that text ends in the middle of; bytes if it ends well, or with
 * what no further byte can make valid. At least bytes - 3. */
size_t tn_utf8_whole(const unsigned char *text, size_t bytes);

/* Writes 1 to 4 bytes and returns how many. */
unsigned tn_utf8_write(uint32_t code, unsigned char out[4]);

/* Offset of the first byte that belongs to no valid sequence; bytes if there is none. */
size_t tn_utf8_check(const unsigned char *text, size_t bytes);
#endif
