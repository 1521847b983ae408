/* rank.c - what is left to us is chosen by score: see registry.h.
 *
 * Each candidate is asked in a child process, once for all choices. A reason that speaks against one is kept:
 * if nothing is left, the reasons together are the error. */
#include "plugin/registry_own.h"

#include <stdlib.h>

#include "base/status.h"

#define MAX_RANKED 64u /* candidates for one choice */

static tn_status ask(struct tn_registry *r, struct tn_candidate *c)
{
    if (c->probe)
        return TN_OK;
    c->probe = tn_alloc(r->arena, sizeof *c->probe);
    if (c->status < 0) {
        c->probe->status = c->status;
        snprintf(c->probe->why, sizeof c->probe->why, "%s", c->why);
        return TN_OK;
    }
    if (c->loaded) {
        tn_plugin_ask(c->loaded, c->probe);
        return TN_OK;
    }
    tn_status s = tn_plugin_probe(c->path, c->probe);
    if (s < 0)
        c->probe = NULL; /* not an answer; the arena keeps the memory */
    return s;
}

tn_status tn_registry_ask(struct tn_registry *r, const struct tn_candidate *c, const struct tn_probe **out)
{
    struct tn_candidate *own = r->search.first;
    tn_status s;

    while (own != c)
        own = own->next;
    s = ask(r, own);
    *out = own->probe;
    return s;
}

struct ranked {
    struct tn_candidate *c;
    uint32_t score;
};

/* Every rank has to come to the same order, so places do not count: they may differ. */
int tn_registry_order(uint32_t score, const char *name, uint32_t other_score, const char *other)
{
    if (score != other_score)
        return score < other_score ? 1 : -1;
    return strcmp(name, other);
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return tn_registry_order(x->score, x->c->card.note.name, y->score, y->c->card.note.name);
}

/* What is fit for the purpose, best first; the reasons of the others are added to *reasons. */
static tn_status rank(struct tn_registry *r, const char *id, tn_registry_filter *reject, void *arg,
                      struct ranked *list, uint32_t *n, const char **reasons)
{
    tn_status s;

    *n = 0;
    *reasons = "";
    for (struct tn_candidate *c = r->search.first; c; c = c->next) {
        if (!tn_card_provides(&c->card, id))
            continue;
        if ((s = ask(r, c)) < 0)
            return s;
        const struct tn_offer *o = tn_probe_offer(c->probe, id);
        const char *why = c->probe->status < 0 ? c->probe->why
                          : !o                 ? "it has no such interface"
                          : reject             ? reject(arg, c, o)
                                               : NULL;
        if (!why && !o->score)
            why = *o->why ? o->why : "not usable here, it gives no reason";
        if (!why && *n < MAX_RANKED)
            list[(*n)++] = (struct ranked){c, o->score};
        else if (why)
            *reasons = tn_text(r->arena, "%s\n  %s: %s", *reasons, c->card.note.name, why);
    }
    qsort(list, *n, sizeof *list, by_rank);
    return TN_OK;
}

/* The candidates of the list that load here too, in order; at most `most`. */
static uint32_t load_ranked(struct tn_registry *r, struct ranked *list, uint32_t n, uint32_t most,
                            const char **reasons)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n && kept < most; i++) {
        if (tn_registry_load(list[i].c) >= 0) {
            list[kept++] = list[i];
            continue;
        }
        tn_log(TN_LOG_WARNING, "%s is passed over: %s", list[i].c->card.note.name, tn_error_text());
        *reasons = tn_text(r->arena, "%s\n  %s: %s", *reasons, list[i].c->card.note.name, tn_error_text());
    }
    tn_error_clear();
    return kept;
}

static const char *what_of(const char *id)
{
    const struct tn_interface_type *type = tn_interface_type(id);

    return type ? type->what : id;
}

static tn_status fail_none(struct tn_registry *r, const char *key, const char *id, const char *reasons)
{
    return tn_registry_fail(r, TN_ERR_CONFIG, "%s: no plugin here is %s that can be used%s%s", key,
                            what_of(id),
                            *reasons ? ":" : "; searched: ", *reasons ? reasons : tn_registry_searched(r));
}

tn_status tn_registry_best(struct tn_registry *r, const char *key, const char *id, tn_registry_filter *reject,
                           void *arg, const void **table)
{
    struct ranked list[MAX_RANKED];
    const char *reasons;
    uint32_t n;
    tn_status s = rank(r, id, reject, arg, list, &n, &reasons);

    *table = NULL;
    if (s < 0)
        return s;
    if (!load_ranked(r, list, n, 1, &reasons))
        return fail_none(r, key, id, reasons);
    *table = tn_plugin_table(list[0].c->loaded, id);
    return TN_OK;
}

/* --- devices and kernels */
struct wanted_kind {
    struct tn_registry *r;
    const char *kind;
};

static const char *reject_kind(void *arg, const struct tn_candidate *c, const struct tn_offer *o)
{
    const struct wanted_kind *w = arg;

    (void)c;
    return strcmp(o->kinds, w->kind) ? tn_text(w->r->arena, "is for the device %s", o->kinds) : NULL;
}

tn_status tn_registry_device(struct tn_registry *r, const char *key, const char *kind,
                             const struct tn_device_api **out)
{
    struct wanted_kind w = {r, kind};
    const void *table;
    tn_status s =
        tn_registry_best(r, tn_text(r->arena, "%s = %s", key, kind), TN_DEVICE_ID, reject_kind, &w, &table);

    *out = table;
    return s;
}

static tn_status add_kernels(struct tn_registry *r, const char *key, const char *name, const char *kind,
                             const struct tn_kernels **out, uint32_t *n)
{
    struct tn_candidate *c = NULL;
    tn_status s = tn_registry_find(r, key, name, TN_KERNELS_ID, &c);

    if (s < 0)
        return s;
    const struct tn_kernels *k = tn_plugin_table(c->loaded, TN_KERNELS_ID);
    if (strcmp(k->device, kind))
        return tn_registry_fail(
            r, TN_ERR_CONFIG,
            "%s = %s: these kernels work on the device %s, backend.device is %s; leave %s out or "
            "change backend.device",
            key, name, k->device, kind, name);
    for (uint32_t i = 0; i < *n; i++)
        if (out[i] == k)
            return tn_registry_fail(r, TN_ERR_CONFIG, "%s names %s twice", key, name);
    if (*n == TN_MAX_KERNELS)
        return tn_registry_fail(r, TN_ERR_CONFIG, "%s names more than %u plugins", key, TN_MAX_KERNELS);
    out[(*n)++] = k;
    return TN_OK;
}

static tn_status named_kernels(struct tn_registry *r, const char *key, const char *names, const char *kind,
                               const struct tn_kernels **out, uint32_t *n)
{
    static const char separators[] = ", \t";
    tn_status s = TN_OK;

    for (const char *p = names + strspn(names, separators); *p && s >= 0; p += strspn(p, separators)) {
        size_t k = strcspn(p, separators);
        s = add_kernels(r, key, tn_text(r->arena, "%.*s", (int)k, p), kind, out, n);
        p += k;
    }
    if (s >= 0 && !*n)
        return tn_registry_fail(r, TN_ERR_CONFIG, "%s is empty; leave it out, or name some of: %s", key,
                                tn_registry_names(r, TN_KERNELS_ID));
    return s;
}

tn_status tn_registry_kernels(struct tn_registry *r, const char *key, const char *names,
                              const char *device_kind, const struct tn_kernels **out, uint32_t *n)
{
    struct wanted_kind w = {r, device_kind};
    struct ranked list[MAX_RANKED];
    const char *reasons;
    tn_status s;

    *n = 0;
    if (names)
        return named_kernels(r, key, names, device_kind, out, n);
    if ((s = rank(r, TN_KERNELS_ID, reject_kind, &w, list, n, &reasons)) < 0)
        return s;
    *n = load_ranked(r, list, *n, TN_MAX_KERNELS, &reasons);
    for (uint32_t i = 0; i < *n; i++)
        out[i] = tn_plugin_table(list[i].c->loaded, TN_KERNELS_ID);
    return *n ? TN_OK
              : fail_none(r, tn_text(r->arena, "%s (for the device %s)", key, device_kind), TN_KERNELS_ID,
                          reasons);
}
