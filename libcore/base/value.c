/* value.c - strict readers of numbers and words, and the words for what they expected. */
#include "base/value.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include "base/near.h"

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void c_locale_make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static const char *digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

int tn_value_int(const char *text, int64_t *out)
{
    const char *first = text + (*text == '-' || *text == '+'), *end = digits(first);

    if (end == first || *end)
        return 0;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno != ERANGE;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before or behind the point */
static int float_shape(const char *text)
{
    const char *first = text + (*text == '-' || *text == '+'), *end = digits(first);
    int64_t seen = end - first;

    if (*end == '.') {
        first = end + 1;
        end = digits(first);
        seen += end - first;
    }
    if (!seen)
        return 0;
    if (*end == 'e' || *end == 'E') {
        first = end + 1 + (end[1] == '-' || end[1] == '+');
        end = digits(first);
        if (end == first)
            return 0;
    }
    return !*end;
}

int tn_value_float(const char *text, double *out)
{
    if (!float_shape(text))
        return 0;
    pthread_once(&c_locale_once, c_locale_make);
    *out = c_locale ? strtod_l(text, NULL, c_locale) : strtod(text, NULL);
    if (*out == 0 && isdigit((unsigned char)text[strcspn(text, "123456789eE")]))
        return 0;                                /* 1e-400 */
    return isfinite(*out);
}

int tn_value_flag(const char *text, int *out)
{
    static const char *const word[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

    for (int i = 0; i < 8; i++)
        if (!strcasecmp(text, word[i])) {
            *out = i % 2;
            return 1;
        }
    return 0;
}

/* --- words */
int tn_value_words(const char *text, char separator, int (*each)(void *arg, const char *word, size_t bytes),
                   void *arg)
{
    for (;;) {
        const char *end = strchrnul(text, separator), *word = text, *last = end;

        while (word < last && isblank((unsigned char)*word))
            word++;
        while (last > word && isblank((unsigned char)last[-1]))
            last--;
        if (each(arg, word, (size_t)(last - word)))
            return 1;
        if (!*end)
            return 0;
        text = end + 1;
    }
}

static int word_is(void *arg, const char *word, size_t bytes)
{
    return strlen(arg) == bytes && !memcmp(arg, word, bytes);
}

static int word_is_empty(void *arg, const char *word, size_t bytes)
{
    (void)arg, (void)word;
    return !bytes;
}

struct nearest {
    struct tn_near near;
    char best[64];
};
static int word_nearest(void *arg, const char *word, size_t bytes)
{
    struct nearest *n = arg;
    char known[64];

    snprintf(known, sizeof known, "%.*s", (int)bytes, word);
    n->near.best = n->near.best ? n->best : NULL;
    tn_near_try(&n->near, known);
    if (n->near.best == known) {
        memcpy(n->best, known, sizeof known);
        n->near.best = n->best;
    }
    return 0;
}

/* --- ranges in words */
struct listing {
    char *out;
    size_t bytes, at, word, words;
};
static int word_count(void *arg, const char *word, size_t bytes)
{
    (void)word, (void)bytes;
    ++*(size_t *)arg;
    return 0;
}

static int word_list(void *arg, const char *word, size_t bytes)
{
    struct listing *l = arg;
    const char *join = !l->word ? "" : l->word + 1 == l->words ? " or " : ", ";

    if (l->at < l->bytes)
        l->at += (size_t)snprintf(l->out + l->at, l->bytes - l->at, "%s%.*s", join, (int)bytes, word);
    l->word++;
    return 0;
}

static void range_number(const struct tn_key *key, char *out, size_t bytes)
{
    const char *kind = key->type == TN_KEY_INT ? "a whole number" : "a number",
               *unit = key->unit ? key->unit : "";
    const char *gap = key->unit ? " " : "";

    if (isinf(key->low) && isinf(key->high))
        snprintf(out, bytes, "%s%s%s", kind, *unit ? " of " : "", unit);
    else if (isinf(key->high))
        snprintf(out, bytes, "%s of at least %.16g%s%s", kind, key->low, gap, unit);
    else if (isinf(key->low))
        snprintf(out, bytes, "%s of at most %.16g%s%s", kind, key->high, gap, unit);
    else
        snprintf(out, bytes, "%s from %.16g to %.16g%s%s", kind, key->low, key->high, gap, unit);
}

const char *tn_key_range(const struct tn_key *key, char *out, size_t bytes)
{
    struct listing l = {.out = out, .bytes = bytes};

    switch (key->type) {
    case TN_KEY_INT: case TN_KEY_FLOAT: range_number(key, out, bytes); break;
    case TN_KEY_FLAG: snprintf(out, bytes, "yes or no"); break;
    case TN_KEY_CHOICE:
        tn_value_words(key->choices, '|', word_count, &l.words);
        tn_value_words(key->choices, '|', word_list, &l);
        break;
    case TN_KEY_LIST: snprintf(out, bytes, "%s, separated by commas", key->unit ? key->unit : "words"); break;
    default: snprintf(out, bytes, "%s", key->unit ? key->unit : "a text"); break;
    }
    return out;
}

/* --- does it fit? */
static int shape_fits(const struct tn_key *key, const char *text)
{
    double value;
    int64_t whole;
    int flag;

    switch (key->type) {
    case TN_KEY_INT:
        return tn_value_int(text, &whole) && (double)whole >= key->low && (double)whole <= key->high;
    case TN_KEY_FLOAT: return tn_value_float(text, &value) && value >= key->low && value <= key->high;
    case TN_KEY_FLAG: return tn_value_flag(text, &flag);
    case TN_KEY_CHOICE: return tn_value_words(key->choices, '|', word_is, (void *)(uintptr_t)text);
    case TN_KEY_LIST: return !tn_value_words(text, ',', word_is_empty, NULL);
    default: return 1;
    }
}

int tn_value_fits(const struct tn_key *key, const char *text, char *why, size_t bytes)
{
    struct nearest n = {.near = {.word = text}};
    char range[256];
    size_t at;

    if (*text && shape_fits(key, text))
        return 1;
    if (!why)
        return 0;
    at = (size_t)snprintf(why, bytes, "expected %s", tn_key_range(key, range, sizeof range));
    if (key->type == TN_KEY_CHOICE && *text) {
        tn_value_words(key->choices, '|', word_nearest, &n);
        if (n.near.best && at < bytes)
            snprintf(why + at, bytes - at, "; did you mean %s?", n.near.best);
    }
    return 0;
}
