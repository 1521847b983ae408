/* server_trial.c - who is at fault: see store.h.
 *
 * A trial begins with the first death, accusation or early goodbye. What a transport says about its peers is
 * no evidence, since one dead rank tears many connections; what counts is whose connection to the store
 * ended, and who does not answer. */
#include "world/server.h"

#include <math.h>
#include <stdlib.h>

#define PATIENCE 10.0 /* seconds after a goodbye with a trouble in which the others must come too */

/* Rank 0 last: its process is this one, and may end as soon as it knows. */
static void tell_all(struct tn_store_server *s, uint32_t type, const void *value, uint32_t bytes)
{
    struct tn_wire_head h = {.type = type, .bytes = bytes};

    for (uint32_t r = s->job.size; r-- > 0;)
        if (s->of_rank[r])
            server_send(s, s->of_rank[r], &h, value);
}

static void begin(struct tn_store_server *s)
{
    if (s->on_trial)
        return;
    s->on_trial = 1;
    s->trial_until = tn_net_now() + TN_STORE_TRIAL;
    tell_all(s, TN_WIRE_NOTICE, NULL, 0);
}

void server_lost(struct tn_store_server *s, struct peer *p, const char *how)
{
    struct tn_report *d = &s->dead[p->rank];

    if (s->decided || (s->leaving == s->job.size && p->leaving))
        return;
    *d = p->answered ? p->report : (struct tn_report){.peer = TN_NOBODY};
    d->rank = p->rank;
    d->state = TN_RANK_DEAD;
    snprintf(d->text, sizeof d->text, "%s", p->answered && *p->report.text ? p->report.text : how);
    begin(s);
}

void server_reported(struct tn_store_server *s, struct peer *p, const struct tn_report *r, int accuses)
{
    if (s->decided || (p->answered && p->report.failed))
        return;
    p->report = *r;
    p->report.rank = p->rank;
    p->report.state = TN_RANK_ALIVE;
    p->report.failed = accuses;
    p->report.phase[sizeof r->phase - 1] = 0;
    p->report.collective[sizeof r->collective - 1] = 0;
    p->report.text[sizeof r->text - 1] = 0;
    p->answered = 1;
    begin(s);
}

/* --- leaving */
void server_goodbye(struct tn_store_server *s, struct peer *p, const char *text, size_t bytes)
{
    size_t n = bytes < sizeof p->farewell ? bytes : sizeof p->farewell - 1;

    if (p->leaving)
        return;
    p->leaving = 1;
    p->until = tn_net_now() + PATIENCE;
    memcpy(p->farewell, text, n);
    p->farewell[n] = 0;
    s->leaving++;
    if (s->leaving == s->job.size && !s->on_trial)
        tell_all(s, TN_WIRE_BYE, NULL, 0);
}

/* Who left with a trouble is missed by the others sooner or later, so they are told. */
static double check_leaving(struct tn_store_server *s, double now)
{
    double next = INFINITY;

    if (!s->leaving || s->leaving == s->job.size || s->on_trial)
        return next;
    for (uint32_t r = 0; r < s->job.size; r++) {
        struct peer *p = s->of_rank[r];
        if (!p || !p->leaving || !*p->farewell)
            continue;
        if (p->until > now) {
            next = fmin(next, p->until);
            continue;
        }
        begin(s);
        return next;
    }
    return next;
}

/* --- the verdict */

/* Smaller comes first. */
static int weight(const struct tn_report *r)
{
    if (r->state != TN_RANK_ALIVE)
        return r->state == TN_RANK_DEAD ? 0 : r->state == TN_RANK_LEFT ? 1 : 2;
    return *r->text ? 3 : 4 + !r->failed;
}

static int by_weight(const void *a, const void *b)
{
    const struct tn_report *x = a, *y = b;

    if (weight(x) != weight(y))
        return weight(x) - weight(y);
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* What is known about a rank that was here; 0: nothing that belongs into a verdict. */
static int judge(struct tn_store_server *s, uint32_t rank, struct tn_report *out)
{
    struct peer *p = s->of_rank[rank];

    if (s->dead[rank].state != TN_RANK_ALIVE) {
        *out = s->dead[rank];
        return 1;
    }
    if (!p)
        return 0;
    *out = p->report;
    out->rank = rank;
    if (p->leaving && *p->farewell) {
        out->state = TN_RANK_LEFT;
        memcpy(out->text, p->farewell, sizeof out->text);
    } else if (!p->answered) {
        *out = (struct tn_report){.rank = rank, .state = TN_RANK_SILENT, .peer = TN_NOBODY};
    }
    return 1;
}

static void decide(struct tn_store_server *s)
{
    struct tn_report *all = calloc(s->job.size, sizeof *all);
    uint32_t n = 0;

    for (uint32_t r = 0; all && r < s->job.size; r++)
        n += (uint32_t)judge(s, r, &all[n]);
    if (all)
        qsort(all, n, sizeof *all, by_weight);
    s->decided = 1;
    s->n_verdict = n < TN_VERDICT_MOST ? n : TN_VERDICT_MOST;
    if (all)
        memcpy(s->verdict, all, s->n_verdict * sizeof *all);
    free(all);
    tell_all(s, TN_WIRE_VERDICT, s->verdict, s->n_verdict * (uint32_t)sizeof *s->verdict);
}

static int all_answered(const struct tn_store_server *s)
{
    for (uint32_t r = 0; r < s->job.size; r++)
        if (s->of_rank[r] && !s->of_rank[r]->answered)
            return 0;
    return 1;
}

double server_trial(struct tn_store_server *s, double now)
{
    double next = check_leaving(s, now);

    if (!s->on_trial || s->decided)
        return next;
    if (s->trial_until > now && !all_answered(s))
        return fmin(next, s->trial_until);
    decide(s);
    return next;
}

void server_tell(struct tn_store_server *s, struct peer *p)
{
    struct tn_wire_head notice = {.type = TN_WIRE_NOTICE};
    struct tn_wire_head h = {.type = TN_WIRE_VERDICT, .bytes = s->n_verdict * (uint32_t)sizeof *s->verdict};

    if (s->decided)
        server_send(s, p, &h, s->verdict);
    else if (s->on_trial)
        server_send(s, p, &notice, NULL);
}
