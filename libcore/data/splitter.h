/* splitter.h - a text cut into pieces, as GPT-2 does before it merges bytes: contractions, words, numbers,
 * other marks, each with one blank before it, and blanks.
 *
 * Tokens never reach over the border of two pieces, so this pattern is a part of the tokenizer. The
 * properties of letters and numbers are those of Unicode as the library PCRE2 knows it; a build without PCRE2
 * has splitter_none.c and makes no splitter. Bytes that are no UTF-8 are pieces of their own, each run of
 * them one. */
#ifndef TN_DATA_SPLITTER_H
#define TN_DATA_SPLITTER_H
#include <tenon/abi.h>

struct tn_splitter;

/* One thread at a time may use it. */
tn_status tn_splitter_new(struct tn_splitter **out);
void tn_splitter_free(struct tn_splitter *s);

/* Where the piece ends that begins at byte `at`, which is below bytes. The text is valid UTF-8 from there on.
 */
tn_status tn_splitter_next(struct tn_splitter *s, const unsigned char *text, uint64_t bytes, uint64_t at,
                           uint64_t *end);

/* The pieces of a text of any bytes, one after the other. Borrows the splitter and the text. */
struct tn_pieces {
    struct tn_splitter *splitter;
    const unsigned char *text;
    uint64_t bytes, at;                          /* at: where the next piece begins; 0 at first */
    uint64_t valid;                              /* UTF-8 up to here; 0 at first */
};
/* TN_DECLINED at the end. */
tn_status tn_pieces_next(struct tn_pieces *p, const unsigned char **piece, uint64_t *bytes);

/* The largest place in the text where a piece begins, whatever comes before and after; 0 if there is none. */
uint64_t tn_pieces_cut(const unsigned char *text, uint64_t bytes);

/* The token that ends a document, as it stands in texts; and where it stands next, bytes if nowhere. */
#define TN_END_OF_TEXT "<|endoftext|>"
uint64_t tn_pieces_document(const unsigned char *text, uint64_t bytes, uint64_t at);
#endif
