/* bpe_train.c - merges learned from a text: again and again the most frequent pair of neighbours becomes a
 * token.
 *
 * Only different words are looked at, each with its number. They stand one behind the other in `token`, which
 * is kept as in bpe_long.c: first byte the id, last byte the complement of where the token begins. Every pair
 * of neighbours has a count and the list of its places, so a merge touches what it changes and nothing else.
 * A heap has the pairs by count; an entry whose count is not the pair's any more is put right when it comes
 * up.
 *
 * Of pairs of equal count the one with the lower left id goes first, then the lower right one, as in Hugging
 * Face's trainer: the result depends on the text alone. No two merges make the same bytes, and lists are in
 * order of place, for the reason that bpe_long.c gives. A pair must be there twice, and a token has
 * TOKEN_LIMIT bytes at most: a text that is one letter a million times would double it for ever. */
#include "data/bpe.h"

#include "data/splitter.h"

#include <inttypes.h>
#include <stdlib.h>

#define TOKEN_LIMIT 256
#define NONE (-1)
#define INSIDE INT32_MIN

struct pair {
    uint64_t key;                                /* UINT64_MAX: empty slot */
    int64_t count;
    int32_t head, tail;                          /* its places */
    int32_t round;                               /* the last merge that added to it */
};

struct candidate {
    int64_t count;
    uint64_t key;
};

struct training {
    struct tn_bpe *b;
    struct tn_bpe_words words;
    int32_t *token, *owner;                      /* [bytes]; owner: whose word it is */
    int32_t *next, *prev;                        /* [bytes] the lists of places */
    int32_t bytes;
    struct pair *pair;                           /* [mask + 1] */
    uint64_t mask, pairs;
    struct candidate *heap;
    uint64_t heap_count, heap_room;
    uint64_t *grown;                             /* keys of the pairs that a merge added to */
    uint64_t grown_count, grown_room;
    int32_t round;
};

/* --- memory */

/* Room for one element more in a list that doubles. */
static int reserve(void *list, uint64_t *room, uint64_t need, size_t size)
{
    void **at = list, *grown;
    uint64_t wanted = *room ? *room : 256;

    if (need <= *room)
        return 1;
    while (wanted < need)
        wanted *= 2;
    if (!(grown = realloc(*at, wanted * size)))
        return 0;
    *at = grown;
    *room = wanted;
    return 1;
}

static tn_status no_memory(void)
{
    return tn_error(TN_ERR_MEMORY, "no memory to train a BPE");
}

static void free_training(struct training *t)
{
    tn_bpe_words_free(&t->words);
    free(t->token);
    free(t->owner);
    free(t->next);
    free(t->prev);
    free(t->pair);
    free(t->heap);
    free(t->grown);
}

/* --- pairs */

static struct pair *find(const struct training *t, uint64_t key)
{
    uint64_t at = tn_bpe_hash(key) & t->mask;

    while (t->pair[at].key != key && t->pair[at].key != UINT64_MAX)
        at = (at + 1) & t->mask;
    return &t->pair[at];
}

static int widen(struct training *t)
{
    struct pair *old = t->pair;
    uint64_t n = old ? t->mask + 1 : 0, slots = old ? 2 * n : 1 << 14;

    t->pair = malloc(slots * sizeof *t->pair);
    if (!t->pair) {
        t->pair = old;
        return 0;
    }
    memset(t->pair, 0xFF, slots * sizeof *t->pair);
    t->mask = slots - 1;
    for (uint64_t i = 0; i < n; i++)
        if (old[i].key != UINT64_MAX)
            *find(t, old[i].key) = old[i];
    free(old);
    return 1;
}

/* Largest count first, then smallest key. */
static int before(struct candidate a, struct candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static int push(struct training *t, struct candidate c)
{
    uint64_t i;

    if (!reserve(&t->heap, &t->heap_room, t->heap_count + 1, sizeof *t->heap))
        return 0;
    for (i = t->heap_count++; i > 0 && before(c, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
    return 1;
}

static struct candidate pop(struct training *t)
{
    struct candidate *h = t->heap, first = h[0], last = h[--t->heap_count];
    uint64_t i = 0, child;

    while ((child = 2 * i + 1) < t->heap_count) {
        child += child + 1 < t->heap_count && before(h[child + 1], h[child]);
        if (!before(h[child], last))
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = last;
    return first;
}

/* --- places */

static int32_t after(const struct training *t, int32_t at)
{
    int32_t next = at + (int32_t)tn_bpe_bytes(t->b, t->token[at]);

    return next < t->bytes && t->owner[next] == t->owner[at] ? next : NONE;
}

static int32_t ahead(const struct training *t, int32_t at)
{
    if (at == 0 || t->owner[at - 1] != t->owner[at])
        return NONE;
    return t->token[at - 1] < 0 ? ~t->token[at - 1] : at - 1;
}

static int enter(struct training *t, int32_t at)
{
    int32_t next = after(t, at);

    if (next == NONE)
        return 1;
    if (2 * t->pairs > t->mask && !widen(t))
        return 0;
    uint64_t key = tn_bpe_pair(t->token[at], t->token[next]);
    struct pair *p = find(t, key);
    if (p->key != key) {
        *p = (struct pair){.key = key, .head = NONE, .tail = NONE, .round = NONE};
        t->pairs++;
    }
    t->next[at] = NONE;
    t->prev[at] = p->tail;
    *(p->tail == NONE ? &p->head : &t->next[p->tail]) = at;
    p->tail = at;
    p->count += t->words.word[t->owner[at]].count;
    if (p->round != t->round) {
        p->round = t->round;
        if (!reserve(&t->grown, &t->grown_room, t->grown_count + 1, sizeof *t->grown))
            return 0;
        t->grown[t->grown_count++] = key;
    }
    return 1;
}

static void leave(struct training *t, int32_t at)
{
    int32_t next = after(t, at), one = t->prev[at], two = t->next[at];

    if (next == NONE)
        return;
    struct pair *p = find(t, tn_bpe_pair(t->token[at], t->token[next]));
    *(one == NONE ? &p->head : &t->next[one]) = two;
    *(two == NONE ? &p->tail : &t->prev[two]) = one;
    p->count -= t->words.word[t->owner[at]].count;
}

/* The pairs that were added to since the last call become candidates. */
static int nominate(struct training *t)
{
    for (uint64_t i = 0; i < t->grown_count; i++)
        if (!push(t, (struct candidate){.count = find(t, t->grown[i])->count, .key = t->grown[i]}))
            return 0;
    t->grown_count = 0;
    t->round++;
    return 1;
}

/* --- tokens */

/* text has room behind its end. */
static int32_t add_token(struct tn_bpe *b, int32_t left, int32_t right)
{
    uint64_t end = b->start[b->tokens];
    uint32_t one = tn_bpe_bytes(b, left), two = tn_bpe_bytes(b, right);

    memcpy(b->text + end, b->text + b->start[left], one);
    memcpy(b->text + end + one, b->text + b->start[right], two);
    b->start[b->tokens + 1] = end + one + two;
    return b->tokens++;
}

static int join(struct training *t, int32_t at, int32_t out)
{
    int32_t first = ahead(t, at), second = after(t, at),
            end = second + (int32_t)tn_bpe_bytes(t->b, t->token[second]);

    if (first != NONE)
        leave(t, first);
    leave(t, at);
    leave(t, second);
    t->token[at] = out;
    t->token[second] = INSIDE;
    t->token[end - 1] = ~at;
    return (first == NONE || enter(t, first)) && enter(t, at);
}

static int merge(struct training *t, uint64_t key)
{
    struct tn_bpe *b = t->b;
    struct tn_bpe_merge m = {.left = (int32_t)(key >> 32), .right = (int32_t)(key & INT32_MAX)};

    m.out = add_token(b, m.left, m.right);
    b->merge[b->merges++] = m;
    for (int32_t at; (at = find(t, key)->head) != NONE;)
        if (!join(t, at, m.out))
            return 0;
    return nominate(t);
}

/* --- from the beginning to the end */

static tn_status too_long(const char *source, uint64_t bytes)
{
    return tn_error(TN_ERR_INPUT,
                    "the different words of %s have %" PRIu64 " bytes, a BPE is trained on less than 2 GiB "
                    "of them; train it on a part of the text, and take it for all by --bpe-dir",
                    source, bytes);
}

static tn_status lay_out(struct training *t, const char *source)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < t->words.count; i++)
        bytes += t->words.word[i].bytes;
    if (bytes >= INT32_MAX)
        return too_long(source, bytes);
    t->token = malloc((bytes + 1) * sizeof *t->token);
    t->owner = malloc((bytes + 1) * sizeof *t->owner);
    t->next = malloc((bytes + 1) * sizeof *t->next);
    t->prev = malloc((bytes + 1) * sizeof *t->prev);
    if (!t->token || !t->owner || !t->next || !t->prev || !widen(t))
        return no_memory();
    for (uint64_t i = 0; i < t->words.count; i++)
        for (uint64_t k = 0; k < t->words.word[i].bytes; k++, t->bytes++) {
            t->token[t->bytes] = tn_bpe_byte_id(t->words.word[i].text[k]);
            t->owner[t->bytes] = (int32_t)i;
        }
    for (int32_t at = 0; at < t->bytes; at++)
        if (!enter(t, at))
            return no_memory();
    return nominate(t) ? TN_OK : no_memory();
}

/* The 256 bytes, and room for all that will come. */
static tn_status begin(struct tn_bpe *b, int32_t tokens)
{
    b->text = malloc(((uint64_t)tokens + 1) * TOKEN_LIMIT);
    b->start = calloc((uint64_t)tokens + 2, sizeof *b->start);
    b->flags = calloc((uint64_t)tokens + 1, 1);
    b->merge = malloc(((uint64_t)tokens + 1) * sizeof *b->merge);
    if (!b->text || !b->start || !b->flags || !b->merge)
        return no_memory();
    for (unsigned c = 0; c < 256; c++)
        b->text[tn_bpe_byte_id((unsigned char)c)] = (unsigned char)c;
    for (b->tokens = 0; b->tokens < 256; b->tokens++)
        b->start[b->tokens + 1] = (uint64_t)b->tokens + 1;
    return TN_OK;
}

static tn_status learn(struct training *t, const char *source, int32_t tokens)
{
    struct tn_bpe *b = t->b;

    while (b->tokens < tokens && t->heap_count > 0) {
        struct candidate c = pop(t);
        int64_t count = find(t, c.key)->count;
        uint32_t bytes =
            tn_bpe_bytes(b, (int32_t)(c.key >> 32)) + tn_bpe_bytes(b, (int32_t)(c.key & INT32_MAX));
        if (count < 2 || count > c.count || bytes > TOKEN_LIMIT)
            continue;
        if (count == c.count ? !merge(t, c.key) : !push(t, (struct candidate){.count = count, .key = c.key}))
            return no_memory();
    }
    if (b->tokens < tokens)
        return tn_error(TN_ERR_INPUT,
                        "%s has no more pairs that are there twice once its BPE has %" PRId32
                        " tokens; --vocab-size can be %" PRId32 " at most",
                        source, b->tokens, b->tokens + (b->end_of_text >= 0));
    return TN_OK;
}

static void add_end_of_text(struct tn_bpe *b)
{
    uint64_t bytes = sizeof TN_END_OF_TEXT - 1;

    memcpy(b->text + b->start[b->tokens], TN_END_OF_TEXT, bytes);
    b->flags[b->tokens] = TN_BPE_ADDED | TN_BPE_SPECIAL;
    b->tokens++;
    b->start[b->tokens] = b->start[b->tokens - 1] + bytes;
}

tn_status tn_bpe_train(struct tn_bpe *b, const char *source, const unsigned char *text, uint64_t bytes,
                       int64_t vocab_size, int end_of_text)
{
    struct training t = {.b = b};
    int32_t tokens = (int32_t)vocab_size - (end_of_text != 0);
    tn_status s;

    if (vocab_size < 256 + (end_of_text != 0) || vocab_size > TN_TOKENIZER_VOCAB)
        return tn_error(TN_ERR_CONFIG,
                        "--tokenizer bpe needs --vocab-size N, from %d (the bytes%s) to %d, or "
                        "--bpe-dir DIR with a vocabulary that is ready",
                        256 + (end_of_text != 0), end_of_text ? " and " TN_END_OF_TEXT : "",
                        TN_TOKENIZER_VOCAB);
    b->end_of_text = end_of_text ? 0 : -1;
    s = begin(b, tokens);
    if (s == TN_OK)
        s = tn_bpe_words_count(&t.words, text, bytes, end_of_text);
    if (s == TN_OK)
        s = lay_out(&t, source);
    if (s == TN_OK)
        s = learn(&t, source, tokens);
    free_training(&t);
    if (s < 0)
        return s;
    if (end_of_text)
        add_end_of_text(b);
    return tn_bpe_finish(b, source);
}
