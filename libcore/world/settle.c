/* settle.c - ranks that end together: texts to rank 0 and back, and an error that all have. See world.h.
 *
 * All of it goes through the store, so it works before the communicator is open and beside it. Each exchange
 * has a number, which is the same on all ranks since all make the same exchanges; keys are made of it. */
#include <stdlib.h>
#include "base/arena.h"
#include "base/status.h"
#include "world/world_own.h"

#define MARGIN 1.0 /* seconds that the others wait longer than rank 0, for its words */

/* What a failed wait means: the verdict that there is, or that is asked for here. */
static tn_status explain(struct tn_world *w, const char *where, tn_status s)
{
    if (s < 0 && tn_world_has_failed(w))
        s = tn_world_failed(w);
    else if (s == TN_ERR_TIMEOUT)
        s = tn_world_fail(w, NULL, where, 0, -1);
    tn_world_waits(w, NULL, 0, -1);
    return s;
}

static tn_status take(struct tn_world *w, const char *key, double seconds, struct tn_arena *a,
                      const char **out)
{
    char *text;
    uint64_t bytes;
    tn_status s = tn_store_take(w->own->client, key, &text, &bytes, seconds > 0 ? seconds : 0);

    if (s < 0)
        return s;
    *out = tn_text(a, "%s", text);
    free(text);
    return TN_OK;
}

tn_status tn_world_collect(struct tn_world *w, const char *what, const char *text, struct tn_arena *a,
                           const char ***out)
{
    const char *where = tn_text(a, "telling rank 0 %s", what);
    double until = tn_net_now() + w->timeout;
    char key[TN_STORE_KEY];
    tn_status s;

    *out = NULL;
    w->own->exchanges++;
    tn_world_waits(w, where, 0, -1);
    snprintf(key, sizeof key, "tenon/to/%u/%u", w->own->exchanges, w->rank);
    s = tn_store_set(w->own->client, key, text, strlen(text));
    *out = tn_alloc_array(a, w->size, sizeof **out);
    for (uint32_t r = 0; r < w->size && s == TN_OK && !w->rank; r++) {
        snprintf(key, sizeof key, "tenon/to/%u/%u", w->own->exchanges, r);
        s = take(w, key, until - tn_net_now(), a, &(*out)[r]);
    }
    return explain(w, where, s);
}

tn_status tn_world_spread(struct tn_world *w, const char *what, const char *text, struct tn_arena *a,
                          const char **out)
{
    const char *where = tn_text(a, "hearing %s from rank 0", what);
    char key[TN_STORE_KEY];
    tn_status s;

    *out = text;
    if (!w || !w->own->client)
        return TN_OK;
    w->own->exchanges++;
    tn_world_waits(w, where, 0, -1);
    snprintf(key, sizeof key, "tenon/from/%u", w->own->exchanges);
    if (!w->rank)
        s = tn_store_set(w->own->client, key, text, strlen(text));
    else
        s = take(w, key, w->timeout + MARGIN, a, out);
    return explain(w, where, s);
}

tn_status tn_world_agreed(struct tn_world *w, tn_status code, const char *words)
{
    w->own->agreed = 1;
    tn_error_long(code, words);
    if (w->rank)
        tn_error_hush();
    return code;
}

void tn_world_go_on(struct tn_world *w)
{
    if (w)
        w->own->agreed = 0;
    tn_error_clear();
}

/* --- settling: a rank's trouble is "CODE TEXT", none is "" */

static const char *trouble_of(const char *text)
{
    const char *space = strchr(text, ' ');

    return space ? space + 1 : text;
}

/* "rank 1 of 4 (host n2, process 4711)", or "ranks 1, 3" of those that have this text. */
static const char *say_who(const struct tn_world *w, struct tn_arena *a, const char **text, uint32_t first)
{
    char name[160];
    const char *list = "";
    uint32_t n = 0;

    for (uint32_t r = first; r < w->size; r++)
        if (!strcmp(text[r], text[first]) && ++n <= 6)
            list = tn_text(a, "%s%s %u", list, n > 1 ? "," : "", r);
    if (n == 1)
        return tn_text(a, "%s", tn_world_name(w, first, name, sizeof name));
    return tn_text(a, "ranks%s%s", list, n > 6 ? ", ..." : "");
}

/* "" where nobody has a trouble. One that all have needs no names. */
static const char *compose(const struct tn_world *w, struct tn_arena *a, const char **text)
{
    const char *out = "";
    uint32_t n = 0, like_first = 0, kinds = 0;

    for (uint32_t r = 0; r < w->size; r++)
        like_first += !strcmp(text[r], text[0]);
    if (like_first == w->size)
        return text[0];
    for (uint32_t r = 0; r < w->size; r++) {
        uint32_t q = 0;

        while (q < r && strcmp(text[q], text[r]))
            q++;
        if (!*text[r] || q < r || kinds++ == 8)
            continue;
        out = n++ ? tn_text(a, "%s\n%s: %s", out, say_who(w, a, text, r), trouble_of(text[r]))
                  : tn_text(a, "%ld %s: %s", strtol(text[r], NULL, 10), say_who(w, a, text, r),
                            trouble_of(text[r]));
    }
    return out;
}

tn_status tn_world_settle(struct tn_world *w, tn_status own)
{
    struct tn_arena *a;
    const char **text, *result = "", *mine = "";
    tn_status s;

    if (!w || !w->own->client)
        return own;
    if (own < 0 && tn_world_has_failed(w))       /* what is wrong here may come of it: another's folder is gone */
        return tn_world_failed(w);
    a = tn_arena_new();
    if (own < 0)
        mine = tn_text(a, "%d %s", (int)own, tn_error_text());
    s = tn_world_collect(w, "the result", mine, a, &text);
    if (s == TN_OK && !w->rank)
        result = compose(w, a, text);
    if (s == TN_OK)
        s = tn_world_spread(w, "the results", result, a, &result);
    if (s == TN_OK && *result)
        s = tn_world_agreed(w, (tn_status)strtol(result, NULL, 10), trouble_of(result));
    else if (s < 0 && own < 0 && !tn_world_has_failed(w))
        s = tn_error_long(own, trouble_of(mine)); /* the others did not come: this rank's own counts */
    tn_arena_free(a);
    return s;
}
