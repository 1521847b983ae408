/* step_observe.c - see step_observe.h.
 *
 * Five moments: before the forward, after it, after the backward, after the update, after clearing. What must come out:
 * forward and backward leave the parameter alone, the gradient is there after the backward, the update alone changes the
 * parameter and the state, and clearing takes the gradient and nothing else. Tenon has no pass that sets gradients to zero:
 * the first contribution of an update replaces what was there. So clearing is shown by a backward in which no token counts:
 * what was left from before would be seen.
 *
 * Each rank compares what it holds, bit by bit; the norms are of whole tensors, on rank 0. After the forward a rank of a
 * pipeline is alone, so there only the comparison is made. */
#include "step_observe.h"

#include <math.h>
#include "base/near.h"
#include "base/status.h"

#define SLOTS 4                                  /* of the optimizer that are shown */

enum { CLEARED = TN_SESSION_UPDATED + 1, MOMENTS };

struct seen {
    double norm, gradient, slot[SLOTS];          /* NAN: not looked at */
    double change;                               /* largest of all elements since the moment before */
    double moved;                                /* any bit of the optimizer's state differs */
};

struct observe {
    struct tn_session *session;
    const char *name;
    uint32_t param, slot[SLOTS], n_slot;         /* numbers of tensors */
    float *whole, *held, *before[1 + SLOTS];     /* before: what this rank held at the moment before */
    struct seen seen[MOMENTS];
    int skipped;
};

/* --- numbers */

static double norm(const float *x, uint64_t bytes)
{
    double sum = 0;

    for (uint64_t i = 0; i < bytes / sizeof *x; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* The largest difference between what this rank holds of tensor i now and then. */
static tn_status compare(struct observe *o, uint32_t i, float *before, double *most)
{
    const struct tn_session_tensor *t = tn_session_tensor(o->session, i);
    tn_status status = tn_session_get_held(o->session, i, o->held);

    if (status < 0 || !t->here)
        return status;
    for (uint64_t k = 0; k < t->held / sizeof *before; k++) {
        double d = fabs((double)o->held[k] - (double)before[k]);
        *most = d > *most ? d : *most;
    }
    memcpy(before, o->held, (size_t)t->held);
    return TN_OK;
}

static tn_status look_at_held(struct observe *o, struct seen *now)
{
    tn_status status = compare(o, o->param, o->before[0], &now->change);

    for (uint32_t k = 0; k < o->n_slot && status == TN_OK; k++)
        status = compare(o, o->slot[k], o->before[1 + k], &now->moved);
    return status;
}

static tn_status whole_norm(struct observe *o, tn_status (*get)(struct tn_session *s, uint32_t i, void *host), uint32_t i,
                            double *out)
{
    tn_status status = get(o->session, i, o->whole);

    *out = norm(o->whole, tn_session_tensor(o->session, i)->bytes);
    return status;
}

static tn_status look_at_whole(struct observe *o, uint32_t moment, struct seen *now)
{
    tn_status status = whole_norm(o, tn_session_get, o->param, &now->norm);

    for (uint32_t k = 0; k < o->n_slot && status == TN_OK; k++)
        status = whole_norm(o, tn_session_get, o->slot[k], &now->slot[k]);
    if (status == TN_OK && moment != TN_SESSION_BEFORE)
        status = whole_norm(o, tn_session_gradient, o->param, &now->gradient);
    return status;
}

static tn_status see(void *ctx, uint32_t moment)
{
    struct observe *o = ctx;
    struct seen *now = &o->seen[moment];
    tn_status status;

    *now = (struct seen){.norm = (double)NAN, .gradient = (double)NAN};
    for (int k = 0; k < SLOTS; k++)
        now->slot[k] = (double)NAN;
    status = look_at_held(o, now);
    if (moment == TN_SESSION_BEFORE)             /* there is no moment before */
        now->change = now->moved = 0;
    return status < 0 || moment == TN_SESSION_FORWARD ? status : look_at_whole(o, moment, now);
}

/* --- finding it */

static tn_status find(struct observe *o)
{
    struct tn_near near = {.word = o->name};
    size_t n = strlen(o->name);
    int found = 0;

    for (uint32_t i = 0; i < tn_session_tensors(o->session); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(o->session, i);

        if (!t->is_state)
            tn_near_try(&near, t->name);
        if (!t->is_state && !strcmp(t->name, o->name))
            o->param = i, found = 1;
        if (t->is_state && !strncmp(t->name, o->name, n) && t->name[n] == ':' && t->dtype == TN_F32 && o->n_slot < SLOTS)
            o->slot[o->n_slot++] = i;
    }
    if (found)
        return TN_OK;
    return tn_error(TN_ERR_CONFIG, "step: --observe %.100s: the model has no such parameter; %s %s", o->name,
                    near.best ? "did you mean" : "one is named", near.best ? near.best : tn_session_tensor(o->session, 0)->name);
}

tn_status observe_new(struct tn_session *s, const char *name, struct tn_arena *arena, struct observe **out)
{
    struct observe *o = *out = tn_alloc(arena, sizeof *o);
    tn_status status;

    *o = (struct observe){.session = s, .name = name};
    if ((status = find(o)) < 0)
        return status;
    const struct tn_session_tensor *t = tn_session_tensor(s, o->param);
    o->whole = tn_alloc(arena, (size_t)t->bytes);
    o->held = tn_alloc(arena, (size_t)t->bytes);
    for (uint32_t k = 0; k <= o->n_slot; k++)
        o->before[k] = tn_alloc(arena, (size_t)t->bytes);
    return TN_OK;
}

/* --- an update */

tn_status observe_update(struct observe *o, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                         struct tn_session_result *out)
{
    tn_status status = tn_session_update_seen(o->session, step, tokens, targets, lr, see, o, out);

    o->skipped = (int)out->skipped;
    return status;
}

static void put(double x)
{
    if (isnan(x))
        printf(" %14s", "-");
    else
        printf(" %14.8g", x);
}

static void print(const struct observe *o, uint64_t step)
{
    static const char *const name[MOMENTS] = {"before the forward", "after the forward", "after the backward",
                                              "after the update", "cleared"};

    printf("\n%s in step %llu\n%-20s %14s %14s %14s", o->name, (unsigned long long)step, "", "norm", "changed by", "gradient");
    for (uint32_t k = 0; k < o->n_slot; k++)
        printf(" %14s", strrchr(tn_session_tensor(o->session, o->slot[k])->name, ':') + 1);
    printf("\n");
    for (int m = 0; m < MOMENTS; m++) {
        const struct seen *now = &o->seen[m];

        if (m == TN_SESSION_UPDATED && o->skipped)
            continue;
        printf("%-20s", name[m]);
        put(m == TN_SESSION_FORWARD && now->change == 0 ? o->seen[m - 1].norm : now->norm);
        put(now->change);
        put(now->gradient);
        for (uint32_t k = 0; k < o->n_slot; k++)
            put(m == TN_SESSION_FORWARD && now->moved == 0 ? o->seen[m - 1].slot[k] : now->slot[k]);
        printf("\n");
    }
}

tn_status observe_end(struct observe *o, uint64_t step, const int32_t *tokens)
{
    double most[2 * MOMENTS];
    tn_status status = tn_session_clear(o->session, step, tokens);

    if (status == TN_OK)
        status = see(o, CLEARED);
    for (int m = 0; m < MOMENTS; m++)
        most[2 * m] = o->seen[m].change, most[2 * m + 1] = o->seen[m].moved;
    if (status == TN_OK)
        status = tn_session_most(o->session, most, 2 * MOMENTS);
    for (int m = 0; m < MOMENTS; m++)
        o->seen[m].change = most[2 * m], o->seen[m].moved = most[2 * m + 1];
    if (status == TN_OK && tn_session_shape(o->session)->rank == 0)
        print(o, step);
    return status;
}
