/* contents.c - see contents.h. A function for each sort of list, and a row for each interface that has some. */
#include "plugin/contents.h"

#include <math.h>
#include <tenon/comm.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include <tenon/pass.h>

#define MOST_OPTIONS 24u                         /* as many as an update takes */
#define MOST_SLOTS 8u
#define MOST_OPS 512u
#define MOST_KINDS 16u
#define MOST_NAME 39u                            /* characters of a key, an operation, a kind */
#define MOST_TEXT 500u                           /* of a default, a help */

__attribute__((format(printf, 2, 3))) static tn_status refuse(char *why, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, TN_WHY_SIZE, fmt, ap);
    va_end(ap);
    return TN_ERR_INPUT;
}

/* a-z, then a-z 0-9 and those of more; for capitals they are in more. */
static int is_word(const char *s, const char *more)
{
    static const char small[] = "abcdefghijklmnopqrstuvwxyz";
    size_t n = 0;

    if (!s || !(strchr(small, *s) || strchr(more, *s)) || !*s)
        return 0;
    while (n <= MOST_NAME && s[n] && (strchr(small, s[n]) || strchr("0123456789", s[n]) || strchr(more, s[n])))
        n++;
    return n <= MOST_NAME && !s[n];
}

static int is_short(const char *s)
{
    return !s || strnlen(s, MOST_TEXT + 1) <= MOST_TEXT;
}

/* --- one word, a list of words */

static tn_status check_kind(const char *id, const char *kind, char *why)
{
    return is_word(kind, "_.-") ? TN_OK
                                : refuse(why, "%s: the kind of device \"%.60s\" is none; it is made of a-z 0-9 _ . -", id, kind);
}

static tn_status check_words(const char *id, const char *what, const char *const *list, uint32_t most, char *why)
{
    for (uint32_t i = 0; list[i]; i++) {
        if (i == most)
            return refuse(why, "%s: its list of %ss has no end within %u", id, what, most);
        if (!is_word(list[i], "_.-"))
            return refuse(why, "%s: \"%.60s\" is no name of %s %s; it is made of a-z 0-9 _ . -", id, list[i],
                          strchr("aeiou", *what) ? "an" : "a", what);
    }
    return TN_OK;
}

/* --- options and slots */

static tn_status check_options(const char *id, const struct tn_option *o, char *why)
{
    for (uint32_t i = 0; o && o[i].key; i++) {
        if (i == MOST_OPTIONS)
            return refuse(why, "%s: its list of options has no end within %u", id, MOST_OPTIONS);
        if (!is_word(o[i].key, "_"))
            return refuse(why, "%s: \"%.60s\" is no key of an option; it is made of a-z 0-9 _", id, o[i].key);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(o[k].key, o[i].key))
                return refuse(why, "%s: its option %s is there twice", id, o[i].key);
        if (!is_short(o[i].preset) || !is_short(o[i].help))
            return refuse(why, "%s: the default or the help of its option %s is longer than %u characters", id, o[i].key, MOST_TEXT);
        if (isnan(o[i].low) || isnan(o[i].high) || o[i].low > o[i].high)
            return refuse(why, "%s: its option %s has the range %g to %g", id, o[i].key, o[i].low, o[i].high);
    }
    return TN_OK;
}

/* What the update knows already, and the attributes of its node. */
static int is_reserved(const char *name)
{
    static const char *const taken[] = {"w", "g", "lr", "t", "clip_factor", "loss_scale", "lr_scale", "f", "in", "results", "uniform"};

    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcmp(name, taken[i]))
            return 1;
    return 0;
}

static int is_option(const struct tn_option *o, const char *name)
{
    for (; o && o->key; o++)
        if (!strcmp(o->key, name))
            return 1;
    return 0;
}

tn_status tn_contents_slots(const struct tn_slot *s, const struct tn_option *options, char *why)
{
    for (uint32_t i = 0; s && s[i].name; i++) {
        if (i == MOST_SLOTS)
            return refuse(why, "its list of slots has no end within %u", MOST_SLOTS);
        if (!is_word(s[i].name, "_ABCDEFGHIJKLMNOPQRSTUVWXYZ") || is_reserved(s[i].name))
            return refuse(why, "\"%.60s\" is no name of a slot; it is made of letters, digits and _, and none of w, g, lr, t", s[i].name);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(s[k].name, s[i].name))
                return refuse(why, "its slot %s is there twice", s[i].name);
        if (is_option(options, s[i].name))
            return refuse(why, "%s is an option and a slot", s[i].name);
        if (s[i].dtype != TN_F32 && s[i].dtype != TN_BF16 && s[i].dtype != TN_F16 && s[i].dtype != TN_F64)
            return refuse(why, "its slot %s has the dtype %u, which is no floating type", s[i].name, s[i].dtype);
    }
    return TN_OK;
}

/* --- a row for each interface */

static tn_status device(const void *table, char *why)
{
    return check_kind(TN_DEVICE_ID, ((const struct tn_device_api *)table)->kind, why);
}

static tn_status capture(const void *table, char *why)
{
    return check_kind(TN_DEVICE_CAPTURE_ID, ((const struct tn_device_capture *)table)->kind, why);
}

static tn_status kernels(const void *table, char *why)
{
    const struct tn_kernels *k = table;
    tn_status s = check_kind(TN_KERNELS_ID, k->device, why);

    return s < 0 ? s : check_words(TN_KERNELS_ID, "operation", k->ops, MOST_OPS, why);
}

static tn_status comm(const void *table, char *why)
{
    return check_words(TN_COMM_ID, "device", ((const struct tn_comm_api *)table)->devices, MOST_KINDS, why);
}

static tn_status optimizer(const void *table, char *why)
{
    const struct tn_optimizer *o = table;
    char cause[TN_WHY_SIZE - 40];
    tn_status s = check_options(TN_OPTIMIZER_ID, o->options, why);

    for (const struct tn_option *i = o->options; s >= 0 && i && i->key; i++)
        if (is_reserved(i->key))
            return refuse(why, "%s: its option %s has a name that every update has", TN_OPTIMIZER_ID, i->key);
    if (s >= 0 && (s = tn_contents_slots(o->slots, o->options, why)) < 0) {
        snprintf(cause, sizeof cause, "%.*s", (int)sizeof cause - 1, why);
        return refuse(why, "%s: %s", TN_OPTIMIZER_ID, cause);
    }
    return s;
}

static tn_status pass(const void *table, char *why)
{
    return check_options(TN_PASS_ID, ((const struct tn_pass *)table)->options, why);
}

static const struct {
    const char *id;
    tn_status (*check)(const void *table, char *why);
} rows[] = {
    {TN_DEVICE_ID, device}, {TN_DEVICE_CAPTURE_ID, capture}, {TN_KERNELS_ID, kernels},
    {TN_COMM_ID, comm},     {TN_OPTIMIZER_ID, optimizer},    {TN_PASS_ID, pass},
};

tn_status tn_contents_check(const struct tn_interface_type *type, const void *table, char *why)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].id, type->id))
            return rows[i].check(table, why);
    return TN_OK;
}
