/* plan_schedule.c - the stages of a pipeline, who does what when, and the pauses. See plan.h.
 *
 * All turns are taken to be of one length, forwards and backwards alike: that shows the order, and the share
 * of pauses that the schedule itself has, whatever the stages cost. What they cost is said beside them. */
#include "plan.h"
#include "plan/timetable.h"

struct picture {
    struct tn_arena *arena;
    const struct tn_graph *graph;
    struct tn_timetable time;
};

/* --- the stages */

/* "block0" becomes "block0-2" */
static const char *close_range(const struct picture *p, const char *text, const char *first, const char *last)
{
    return first && last != first ? tn_text(p->arena, "%s-%s", text, last + 5) : text;
}

/* Units of stage `stage` in words, "embed block0-2"; adds up their FLOPs. */
static const char *units_of(const struct picture *p, int64_t stage, double *flops)
{
    const struct tn_mesh alone = tn_mesh_single();
    const char *text = "", *unit = NULL, *first = NULL, *last = NULL;

    *flops = 0;
    for (const struct tn_node *n = p->graph->first[TN_FORWARD]; n; n = n->next) {
        int64_t from;

        if (tn_stage_of_node(n, &from) != stage && p->time.n_stage > 1)
            continue;
        *flops += tn_node_flops(n, &alone);
        if (n->unit == unit)
            continue;
        unit = n->unit;
        if (strncmp(unit, "block", 5)) {
            text = close_range(p, text, first, last);
            first = NULL;
        }
        if (!first)
            text = tn_text(p->arena, "%s%s%s", text, *text ? " " : "", unit);
        if (!first && !strncmp(unit, "block", 5))
            first = unit;
        last = unit;
    }
    return close_range(p, text, first, last);
}

static void print_stages(const struct picture *p)
{
    const struct tn_timetable *t = &p->time;
    double each, all = 0;

    for (uint32_t s = 0; s < t->n_stage; s++, all += each)
        units_of(p, s, &each);
    for (uint32_t s = 0; s < t->n_stage; s++) {
        const char *units = units_of(p, s, &each);

        printf("stage %-3u rank %-4u  %4.1f %% of the FLOPs, %u micro-batch%s in flight: %s\n", s,
               s % t->n_rank, all > 0 ? 100 * each / all : 0, t->slots[s], t->slots[s] == 1 ? "" : "es",
               units);
    }
}

/* --- time */

/* "F3", and where a rank has several stages "F3.2": micro-batch 3 through stage 2. */
static const char *label(const struct picture *p, const struct tn_turn *x)
{
    const char *text = tn_text(p->arena, "%c%u", x->phase == TN_FORWARD ? 'F' : 'B', x->micro);

    return p->time.n_stage > p->time.n_rank ? tn_text(p->arena, "%s.%u", text, x->stage) : text;
}

static int width_of(const struct picture *p)
{
    size_t most = 2;

    for (uint32_t r = 0; r < p->time.n_rank; r++)
        for (uint32_t i = 0; i < p->time.n_turn[r]; i++) {
            size_t n = strlen(label(p, &p->time.turn[r][i]));

            most = n > most ? n : most;
        }
    return (int)most;
}

static void print_rank(const struct picture *p, uint32_t rank, int width)
{
    double now = 0;

    printf("rank %-3u", rank);
    for (uint32_t i = 0; i < p->time.n_turn[rank]; now = p->time.turn[rank][i++].end) {
        for (; now < p->time.turn[rank][i].start; now++)
            printf(" %-*s", width, "..");
        printf(" %-*s", width, label(p, &p->time.turn[rank][i]));
    }
    for (; now < p->time.length; now++)
        printf(" %-*s", width, "..");
    printf("\n");
}

static void print_bubble(const struct picture *p)
{
    const struct tn_timetable *t = &p->time;
    double idle = 0, stages = (double)(t->n_stage / t->n_rank), ranks = t->n_rank;

    for (uint32_t r = 0; r < t->n_rank; r++)
        idle += t->length - (double)t->n_turn[r];
    printf("bubble %.1f %%: of %.0f turns in time a rank has %.1f; (P - 1) / (V A + P - 1) with P = %.0f, V "
           "= %.0f, A = %u is %.1f %%\n",
           100 * idle / (ranks * t->length), t->length, t->length - idle / ranks, ranks, stages, t->n_micro,
           100 * (ranks - 1) / (stages * t->n_micro + ranks - 1));
}

tn_status plan_schedule(const struct tn_session *s)
{
    struct picture p = {.arena = tn_arena_new(), .graph = tn_session_graph(s, TN_SESSION_TRAIN)};
    tn_status status =
        tn_timetable_make(p.arena, p.graph, (uint32_t)tn_session_shape(s)->n_micro, 1, 1, &p.time);

    if (status == TN_OK) {
        int width = width_of(&p);

        printf("\nschedule of the pipeline: F forward, B backward of a micro-batch\n");
        print_stages(&p);
        for (uint32_t r = 0; r < p.time.n_rank; r++)
            print_rank(&p, r, width);
        print_bubble(&p);
    }
    tn_arena_free(p.arena);
    return status;
}
