/* timetable.c - see timetable.h. */
#include "plan/timetable.h"
#include "base/arena.h"
#include "base/status.h"
#include "graph/op.h"

struct edge {                                    /* a move, in program order */
    uint32_t phase, from, to;
};

struct maker {
    struct tn_timetable *t;
    struct tn_arena *arena;
    struct edge *edge;
    uint32_t n_edge, backward;                   /* backward: there is one */
    double *start[2], *end[2];                   /* [stage * n_micro + micro], -1: not yet; forward, backward */
    uint32_t *next;                              /* [rank] its next turn */
    uint32_t *before;                            /* [stage * n_micro + micro] who had the slot before, or NONE_BEFORE */
};

#define NONE_BEFORE UINT32_MAX

static const char *phase_name(uint32_t phase)
{
    return phase == TN_FORWARD ? "forward" : "backward";
}

/* --- the graph's stages */

int tn_stage_axis(void)
{
    return tn_axis_find("pp");
}

int64_t tn_stage_of_value(const struct tn_value *v)
{
    const struct tn_layout_info *l = tn_layout_get(v->graph, v->layout[tn_stage_axis()]);

    return l->kind == TN_LAYOUT_STAGE ? l->rot : -1;
}

int64_t tn_stage_of_node(const struct tn_node *n, int64_t *from)
{
    int64_t stage = -1;

    *from = -1;
    for (uint32_t i = 0; i < n->n_in && stage < 0; i++)
        stage = tn_stage_of_value(n->in[i]);
    if (n->op->flags & TN_OP_COLLECTIVE && !strcmp(n->op->name, "move") && n->n_out) {
        *from = stage;
        return tn_stage_of_value(n->out[0]);
    }
    for (uint32_t o = 0; o < n->n_out && stage < 0; o++)
        stage = tn_stage_of_value(n->out[o]);
    return stage;
}

static void look_at_graph(struct maker *k, const struct tn_graph *g)
{
    uint32_t most = k->t->n_rank;

    for (const struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n)) {
        int64_t from, to = tn_stage_of_node(n, &from);

        if (to + 1 > (int64_t)most)
            most = (uint32_t)to + 1;
        if (from + 1 > (int64_t)most)
            most = (uint32_t)from + 1;
        k->backward |= n->phase == TN_BACKWARD;
        if (from < 0 || from == to || (n->phase != TN_FORWARD && n->phase != TN_BACKWARD))
            continue;
        k->edge = tn_alloc_grow(k->arena, k->edge, k->n_edge, sizeof *k->edge);
        k->edge[k->n_edge++] = (struct edge){n->phase, (uint32_t)from, (uint32_t)to};
    }
    k->t->n_stage = most;
}

/* --- turns */

static void add_turn(struct maker *k, uint32_t rank, uint32_t phase, uint32_t micro, uint32_t stage)
{
    struct tn_timetable *t = k->t;

    t->turn[rank] = tn_alloc_grow(k->arena, t->turn[rank], t->n_turn[rank], sizeof **t->turn);
    t->turn[rank][t->n_turn[rank]++] = (struct tn_turn){.phase = phase, .micro = micro, .stage = stage};
}

static void one_after_the_other(struct maker *k)
{
    struct tn_timetable *t = k->t;

    for (uint32_t m = 0; m < t->n_micro; m++) {
        for (uint32_t s = 0; s < t->n_stage; s++)
            add_turn(k, s % t->n_rank, TN_FORWARD, m, s);
        for (uint32_t s = t->n_stage; s-- > 0 && k->backward;)
            add_turn(k, s % t->n_rank, TN_BACKWARD, m, s);
    }
}

static tn_status read_tasks(struct maker *k, const struct tn_graph *g)
{
    const struct tn_timetable *t = k->t;

    for (uint32_t i = 0; i < g->n_task; i++) {
        const struct tn_task_entry *e = &g->task[i];

        if (e->rank >= t->n_rank || e->micro >= t->n_micro || e->stage >= t->n_stage || e->stage % t->n_rank != e->rank)
            return tn_error(TN_ERR_CONFIG,
                            "the schedule has %s of micro-batch %u through stage %u on rank %u: there are %u ranks, %u stages "
                            "(stage s is on rank s mod %u) and %u micro-batches",
                            phase_name(e->phase), e->micro, e->stage, e->rank, t->n_rank, t->n_stage, t->n_rank, t->n_micro);
        add_turn(k, e->rank, e->phase, e->micro, e->stage);
    }
    return TN_OK;
}

/* Each stage has each micro-batch once in each direction, forward first. */
static tn_status check_complete(const struct maker *k)
{
    const struct tn_timetable *t = k->t;
    uint8_t *seen = tn_alloc(k->arena, (size_t)t->n_stage * t->n_micro + 1);

    for (uint32_t r = 0; r < t->n_rank; r++)
        for (uint32_t i = 0; i < t->n_turn[r]; i++) {
            const struct tn_turn *x = &t->turn[r][i];
            uint8_t *at = &seen[x->stage * t->n_micro + x->micro];

            if (*at != (x->phase == TN_FORWARD ? 0 : 1))
                return tn_error(TN_ERR_CONFIG, "the schedule has the %s of micro-batch %u through stage %u %s", phase_name(x->phase),
                                x->micro, x->stage, *at ? "twice" : "before its forward");
            ++*at;
        }
    for (uint32_t i = 0; i < t->n_stage * t->n_micro; i++)
        if (seen[i] != 1 + k->backward)
            return tn_error(TN_ERR_CONFIG, "the schedule lacks the %s of micro-batch %u through stage %u",
                            phase_name(seen[i] ? TN_BACKWARD : TN_FORWARD), i % t->n_micro, i / t->n_micro);
    return TN_OK;
}

/* --- slots */

/* Each forward takes, of the stage's slots that are free, the one that was given back first: what it sent has had the most
 * time. Who had it before is kept, for the wait. */
static void give_slots(struct maker *k, uint32_t stage, uint32_t slots)
{
    struct tn_timetable *t = k->t;
    uint32_t *free = tn_alloc_array(k->arena, t->n_micro + 1u, sizeof *free), *of = tn_alloc_array(k->arena, t->n_micro + 1u, sizeof *of);
    uint32_t *last = tn_alloc_array(k->arena, t->n_micro + 1u, sizeof *last), n_free = 0, rank = stage % t->n_rank;

    for (uint32_t s = 0; s < slots; s++)
        free[n_free++] = s, last[s] = NONE_BEFORE;
    for (uint32_t i = 0; i < t->n_turn[rank]; i++) {
        struct tn_turn *x = &t->turn[rank][i];

        if (x->stage != stage)
            continue;
        if (x->phase == TN_FORWARD) {
            of[x->micro] = free[0];
            memmove(free, free + 1, --n_free * sizeof *free);
            k->before[stage * t->n_micro + x->micro] = last[of[x->micro]];
            last[of[x->micro]] = x->micro;
        }
        x->slot = of[x->micro];
        if (x->phase == TN_BACKWARD || !k->backward)
            free[n_free++] = x->slot;
    }
}

static uint32_t in_flight(const struct maker *k, uint32_t stage)
{
    const struct tn_timetable *t = k->t;
    uint32_t now = 0, most = 1, rank = stage % t->n_rank;

    for (uint32_t i = 0; i < t->n_turn[rank] && k->backward; i++) {
        const struct tn_turn *x = &t->turn[rank][i];

        if (x->stage == stage)
            now += x->phase == TN_FORWARD ? 1u : ~0u;
        most = now > most ? now : most;
    }
    return most;
}

/* --- time */

/* When everything that the turn waits for has happened, -1: not yet. */
static double ready(const struct maker *k, const struct tn_turn *x)
{
    const struct tn_timetable *t = k->t;
    uint32_t before = x->phase == TN_FORWARD ? k->before[x->stage * t->n_micro + x->micro] : NONE_BEFORE;
    double when = 0;

    for (uint32_t e = 0; e < k->n_edge; e++) {
        const struct edge *m = &k->edge[e];
        double arrives = 0;

        if (m->to == x->stage && m->phase == x->phase) {
            arrives = k->end[m->phase == TN_BACKWARD][m->from * t->n_micro + x->micro];
            if (arrives < 0)
                return -1;
        }
        when = arrives > when ? arrives : when;
        if (before == NONE_BEFORE || m->from != x->stage || m->to % t->n_rank == x->stage % t->n_rank)
            continue;
        arrives = k->start[m->phase == TN_BACKWARD][m->to * t->n_micro + before];
        if (arrives < 0)
            return -1;
        when = arrives > when ? arrives : when;
    }
    return when;
}

/* Lets all ranks walk; returns the rank that got no further first, or n_rank. */
static uint32_t walk(struct maker *k, const double length[2])
{
    struct tn_timetable *t = k->t;
    int moved = 1;

    for (int p = 0; p < 2; p++)
        for (uint32_t i = 0; i < t->n_stage * t->n_micro; i++)
            k->start[p][i] = k->end[p][i] = -1;
    memset(k->next, 0, t->n_rank * sizeof *k->next);
    t->length = 0;
    while (moved) {
        moved = 0;
        for (uint32_t r = 0; r < t->n_rank; r++)
            for (; k->next[r] < t->n_turn[r]; k->next[r]++, moved = 1) {
                struct tn_turn *x = &t->turn[r][k->next[r]];
                double free = k->next[r] ? x[-1].end : 0, when = ready(k, x);
                uint32_t p = x->phase == TN_BACKWARD, at = x->stage * t->n_micro + x->micro;

                if (when < 0)
                    break;
                x->start = k->start[p][at] = when > free ? when : free;
                x->end = k->end[p][at] = x->start + length[p];
                t->length = x->end > t->length ? x->end : t->length;
            }
    }
    for (uint32_t r = 0; r < t->n_rank; r++)
        if (k->next[r] < t->n_turn[r])
            return r;
    return t->n_rank;
}

/* With as few slots as are in flight, or so many more that no rank waits for itself. */
static tn_status take_time(struct maker *k, const double length[2])
{
    struct tn_timetable *t = k->t;
    uint32_t stuck = 0;

    for (uint32_t more = 0; more < t->n_micro || !more; more++) {
        for (uint32_t s = 0; s < t->n_stage; s++) {
            t->slots[s] = in_flight(k, s) + more < t->n_micro ? in_flight(k, s) + more : t->n_micro;
            give_slots(k, s, t->slots[s]);
        }
        stuck = walk(k, length);
        if (stuck == t->n_rank)
            return TN_OK;
    }
    const struct tn_turn *x = &t->turn[stuck][k->next[stuck]];
    return tn_error(TN_ERR_CONFIG,
                    "the schedule would never end: on axis pp rank %u waits for its turn %u, %s of micro-batch %u through stage %u", stuck,
                    k->next[stuck], phase_name(x->phase), x->micro, x->stage);
}

/* --- messages */

/* The n-th message of a phase from rank a to rank b as one of them sees it: micro * n_edge + edge. */
static uint64_t *messages(const struct maker *k, uint32_t phase, uint32_t a, uint32_t b, int sender, uint32_t *n)
{
    const struct tn_timetable *t = k->t;
    uint32_t rank = sender ? a : b;
    uint64_t *list = NULL;

    *n = 0;
    for (uint32_t i = 0; i < t->n_turn[rank]; i++)
        for (uint32_t e = 0; e < k->n_edge && t->turn[rank][i].phase == phase; e++) {
            const struct edge *m = &k->edge[e];

            if (m->phase != phase || m->from % t->n_rank != a || m->to % t->n_rank != b ||
                (sender ? m->from : m->to) != t->turn[rank][i].stage)
                continue;
            list = tn_alloc_grow(k->arena, list, *n, sizeof *list);
            list[(*n)++] = (uint64_t)t->turn[rank][i].micro * k->n_edge + e;
        }
    return list;
}

static tn_status check_messages(const struct maker *k)
{
    const struct tn_timetable *t = k->t;

    for (uint32_t a = 0; a < t->n_rank; a++)
        for (uint32_t b = 0; b < t->n_rank; b++)
            for (uint32_t phase = TN_FORWARD; phase <= TN_BACKWARD && a != b; phase++) {
                uint32_t n, m;
                uint64_t *sent = messages(k, phase, a, b, 1, &n), *expected = messages(k, phase, a, b, 0, &m);

                for (uint32_t i = 0; i < n; i++)
                    if (i >= m || sent[i] != expected[i])
                        return tn_error(TN_ERR_CONFIG,
                                        "the schedule crosses messages: rank %u of axis pp sends in the %s micro-batch %u to stage %u where "
                                        "rank %u expects micro-batch %u for stage %u",
                                        a, phase_name(phase), (uint32_t)(sent[i] / k->n_edge), k->edge[sent[i] % k->n_edge].to, b,
                                        i < m ? (uint32_t)(expected[i] / k->n_edge) : 0, i < m ? k->edge[expected[i] % k->n_edge].to : 0);
            }
    return TN_OK;
}

/* --- */

int tn_timetable_in_sequence(const struct tn_timetable *t, uint32_t rank)
{
    for (uint32_t i = 1; i < t->n_turn[rank]; i++)
        if (t->turn[rank][i].micro < t->turn[rank][i - 1].micro ||
            (t->turn[rank][i].micro > t->turn[rank][i - 1].micro && t->turn[rank][i].phase != TN_FORWARD))
            return 0;
    return 1;
}

tn_status tn_timetable_make(struct tn_arena *arena, const struct tn_graph *g, uint32_t n_micro, double forward, double backward,
                            struct tn_timetable *out)
{
    struct maker k = {.t = out, .arena = arena};
    double length[2] = {forward, backward};
    tn_status s;

    *out = (struct tn_timetable){.n_rank = (uint32_t)g->mesh.size[tn_stage_axis()], .n_micro = n_micro};
    look_at_graph(&k, g);
    out->n_turn = tn_alloc_array(arena, out->n_rank, sizeof *out->n_turn);
    out->turn = tn_alloc_array(arena, out->n_rank, sizeof *out->turn);
    out->slots = tn_alloc_array(arena, out->n_stage, sizeof *out->slots);
    k.next = tn_alloc_array(arena, out->n_rank, sizeof *k.next);
    k.before = tn_alloc_array(arena, (size_t)out->n_stage * n_micro, sizeof *k.before);
    for (int p = 0; p < 2; p++) {
        k.start[p] = tn_alloc_array(arena, (size_t)out->n_stage * n_micro, sizeof **k.start);
        k.end[p] = tn_alloc_array(arena, (size_t)out->n_stage * n_micro, sizeof **k.end);
    }
    if (g->n_task && k.backward)
        s = read_tasks(&k, g);
    else {
        one_after_the_other(&k);
        s = TN_OK;
    }
    if (!s)
        s = check_complete(&k);
    if (!s)
        s = check_messages(&k);
    return s ? s : take_time(&k, length);
}
