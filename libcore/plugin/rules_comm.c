/* rules_comm.c - communicators: a start gives a request or an error with a sentence, a wait takes it, and only a poll may say
 * "not yet". */
#include "plugin/rules_own.h"

static struct {
    const char *path;
    struct tn_comm_api real;
} comms[TN_RULES_MOST];
static uint32_t n_comms;

static tn_status watch_start(uint32_t i, struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                             struct tn_request **out)
{
    tn_status s;

    tn_error_clear();
    *out = (struct tn_request *)(uintptr_t)1;
    s = comms[i].real.start(c, t, n, stream, out);
    tn_rule_says(comms[i].path, "start", s);
    if (s < 0 ? *out != NULL : !*out || *out == (struct tn_request *)(uintptr_t)1)
        tn_rule_broken(NULL, "%s: start gives status %d and %s request", comms[i].path, (int)s, *out ? "a" : "no");
    if (s > 0)
        tn_rule_broken(NULL, "%s: start gives status %d, which it has not", comms[i].path, (int)s);
    return s;
}

static tn_status watch_wait(uint32_t i, struct tn_request *r, double seconds)
{
    tn_status s;

    tn_error_clear();
    s = comms[i].real.wait(r, seconds);
    tn_rule_says(comms[i].path, "wait", s);
    if (s > TN_DECLINED || (s == TN_DECLINED && seconds > 0))
        tn_rule_broken(NULL, "%s: wait for %g s gives status %d; \"not yet\" is for polls", comms[i].path, seconds, (int)s);
    return s;
}

#define COMM(I)                                                                                                      \
    static tn_status comm_start_##I(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,        \
                                    struct tn_request **out)                                                         \
    {                                                                                                                \
        return watch_start(I, c, t, n, stream, out);                                                                 \
    }                                                                                                                \
    static tn_status comm_wait_##I(struct tn_request *r, double seconds)                                             \
    {                                                                                                                \
        return watch_wait(I, r, seconds);                                                                            \
    }
EACH(COMM)
#define NAME_START(I) comm_start_##I,
#define NAME_WAIT(I) comm_wait_##I,
static tn_status (*const starts[])(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                                   struct tn_request **out) = {EACH(NAME_START)};
static tn_status (*const waits[])(struct tn_request *r, double seconds) = {EACH(NAME_WAIT)};

void tn_rules_comm(const char *path, struct tn_comm_api *t)
{
    if (n_comms == TN_RULES_MOST)
        return;
    comms[n_comms].path = path, comms[n_comms].real = *t;
    t->start = starts[n_comms], t->wait = waits[n_comms];
    n_comms++;
}
