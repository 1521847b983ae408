/* pp - pipeline parallelism (GPipe, Huang et al. 2019; 1F1B and interleaved, Narayanan et al. 2021).
 *
 * The units of the model are dealt to stages, in order. A stage is a layout on the axis, so what crosses is a conversion
 * like any other and autodiff makes the way back. A parameter that two stages use gets a copy on the second; the
 * gradients of both are exchanged and added in one order, so the copies stay the same bits. Stage s runs on rank
 * s mod P. All schedules are one rule: how many forwards a rank is ahead of its backwards. */
#include <stdlib.h>
#include <tenon/pass.h>

struct unit {
    const char *name;                            /* interned */
    double cost;                                 /* FLOPs of its forward */
    uint32_t stage;
};

struct cut {
    uint32_t stages, units;
    struct unit *unit;                           /* [units], in order */
};

/* --- which schedule */

static int is_interleaved(struct tn_graph *g)
{
    return tn_is(tn_option_text(g, "schedule"), "interleaved");
}

static uint32_t stages_per_rank(struct tn_graph *g)
{
    double v = tn_option(g, "virtual");

    if (v != (double)(uint32_t)v || (v > 1 && !is_interleaved(g)))
        tn_fail(g, TN_ERR_CONFIG, "parallel.virtual = %g: a whole number of stages on each rank, and more than one only under "
                "parallel.schedule = interleaved, here it is %s", v, tn_option_text(g, "schedule"));
    return v > 0 ? (uint32_t)v : is_interleaved(g) ? 2 : 1;
}

/* --- cutting */

static struct unit *find(const struct cut *c, const char *name)
{
    for (uint32_t i = 0; i < c->units; i++)
        if (c->unit[i].name == name)
            return &c->unit[i];
    return NULL;
}

static void list_units(struct tn_graph *g, struct cut *c)
{
    tn_each_node(g, n) {
        struct unit *u = tn_phase(n) == TN_FORWARD ? find(c, tn_unit(n)) : NULL;

        if (tn_phase(n) != TN_FORWARD)
            continue;
        if (!u) {
            c->unit = realloc(c->unit, (c->units + 1) * sizeof *c->unit);
            u = &c->unit[c->units++];
            *u = (struct unit){.name = tn_unit(n)};
        }
        u->cost += tn_flops(n);
    }
}

/* The stages whose dearest is cheapest: in a sum of eighth powers the largest decides, and among equals evenness does. What is
 * still open goes to later stages, which keep fewer micro-batches. best[s][i]: of the first i units on s stages. */
static void balance(struct cut *c)
{
    uint32_t row = c->units + 1, *first = calloc((size_t)(c->stages + 1) * row, sizeof *first);
    double *best = calloc((size_t)(c->stages + 1) * row, sizeof *best), all = 0;

    for (uint32_t i = 0; i < c->units; i++)
        all += c->unit[i].cost;
    for (uint32_t s = 0; s <= c->stages; s++)
        for (uint32_t i = s; i <= c->units; i++) {
            double *here = &best[s * row + i], cost = 0;

            *here = s || i ? 1e300 : 0;
            for (uint32_t j = i; s && j-- > s - 1;) {
                double part, sum;

                cost += c->unit[j].cost / all;
                part = cost * cost * cost * cost;
                sum = best[(s - 1) * row + j] + part * part;
                if (sum <= *here * (1 + 1e-9))
                    *here = sum, first[s * row + i] = j;
            }
        }
    for (uint32_t s = c->stages, i = c->units; s; i = first[s-- * row + i])
        for (uint32_t j = first[s * row + i]; j < i; j++)
            c->unit[j].stage = s - 1;
    free(first);
    free(best);
}

static int is_block(const struct unit *u)
{
    return !strncmp(u->name, "block", 5);
}

/* As the list says: blocks on each stage. What is before the blocks is on the first stage, after them on the last. */
static void deal(struct tn_graph *g, struct cut *c, const char *list)
{
    uint32_t stage = 0, blocks = 0, last = c->stages - 1, empty = 0;
    char *at;
    unsigned long left = strtoul(list, &at, 10);

    for (uint32_t i = 0; i <= c->units; i++) {
        int block = i < c->units && is_block(&c->unit[i]);

        while (!left && *at == ',' && (block || i == c->units)) {
            left = strtoul(at + 1, &at, 10);
            empty += ++stage < last && !left;
        }
        left -= (unsigned long)block;
        blocks += (uint32_t)block;
        if (i < c->units)
            c->unit[i].stage = block ? stage : blocks ? last : 0;
    }
    if (left || *at || stage != last || empty || strspn(list, "0123456789, ") != strlen(list))
        tn_fail(g, TN_ERR_CONFIG, "parallel.stages = %s: there are %u stages for %u blocks, so it must be %u numbers of blocks with this sum, "
                "with commas between them, none 0 but the first and the last", list, c->stages, blocks, c->stages);
}

/* Units and their stages; the list is the caller's to free. */
static struct cut cut_units(struct tn_graph *g, const char *axis)
{
    struct cut c = {.stages = (uint32_t)tn_axis_size(g, axis) * stages_per_rank(g)};

    list_units(g, &c);
    if (c.stages > c.units)
        tn_fail(g, TN_ERR_CONFIG, "parallel.%s = %lld makes %u stages, and the model has only %u parts (its blocks, and what is before "
                "and after them): fewer ranks, or fewer stages on each", axis, (long long)tn_axis_size(g, axis), c.stages, c.units);
    else if (*tn_option_text(g, "stages"))
        deal(g, &c, tn_option_text(g, "stages"));
    else
        balance(&c);
    return c;
}

/* --- the graph */

/* An input of the micro-batch is held where it is used, if that is one stage. */
static void place_input(struct tn_graph *g, struct tn_value *v, const struct cut *c, const char *axis)
{
    const struct unit *only = NULL;

    tn_each_user(v, n) {
        const struct unit *u = find(c, tn_unit(n));

        if (!u || tn_phase(n) != TN_FORWARD || (only && only->stage != u->stage))
            return;
        only = u;
    }
    if (only && tn_dim(v, "batch"))
        tn_set_layout(v, axis, tn_on(g, only->stage));
}

/* v for node n, on the stage of n. Positions are constants: each stage has its own. */
static void bring(struct tn_graph *g, struct tn_node *n, struct tn_value *v, const char *axis, tn_layout here)
{
    if (tn_producer(v))
        tn_convert_input(g, n, v, axis, here);
    else if (tn_is_param(v) || !tn_dim(v, "batch"))
        tn_set_input(n, v, tn_copy_param(v, axis, here));
}

static void forward(struct tn_graph *g, const char *axis)
{
    struct cut c = cut_units(g, axis);

    tn_each_node(g, n) {
        const struct unit *u = find(&c, tn_unit(n));

        if (!u)
            continue;
        tn_each_operand(n, v)
            bring(g, n, v, axis, tn_on(g, u->stage));
    }
    tn_each_input(g, v)
        place_input(g, v, &c, axis);
    free(c.unit);
}

static void train(struct tn_graph *g, const char *axis)
{
    tn_each_param(g, w) {
        struct tn_value *first = tn_primary(w), *a = tn_grad(first), *b = tn_grad(w);

        if (first == w)
            continue;
        tn_at_end(g, TN_AFTER, "reduce");
        tn_set_role(g, "tied");
        tn_set_grad(first, tn_expr(g, "a + b", TN_IN(a, tn_convert(b, axis, tn_layout_of(a, axis)))));
        tn_set_grad(w, tn_expr(g, "a + b", TN_IN(tn_convert(a, axis, tn_layout_of(b, axis)), b)));
    }
}

/* --- the schedule */

struct order {
    struct tn_graph *g;
    uint32_t ranks, virtual, micro;              /* ranks, stages on each, micro-batches */
};

/* The k-th forward or backward of a rank. Several stages on a rank take turns, as many micro-batches at a time as there are ranks. */
static void put(const struct order *o, uint32_t rank, uint32_t phase, uint32_t k)
{
    uint32_t chunk = k / o->ranks % o->virtual, micro = k / (o->ranks * o->virtual) * o->ranks + k % o->ranks;

    tn_task(o->g, rank, phase, micro, (phase == TN_FORWARD ? chunk : o->virtual - 1 - chunk) * o->ranks + rank);
}

/* Forwards of a rank before its first backward. */
static uint32_t ahead(const struct order *o, uint32_t rank)
{
    uint32_t all = o->micro * o->virtual, n = o->ranks - rank - 1;

    if (is_interleaved(o->g))
        n = 2 * n + (o->virtual - 1) * o->ranks;
    return n > all || tn_is(tn_option_text(o->g, "schedule"), "afab") ? all : n;
}

static void schedule(struct tn_graph *g, const char *axis)
{
    const struct order o = {g, (uint32_t)tn_axis_size(g, axis), stages_per_rank(g), tn_micro_batches(g)};
    uint32_t all = o.micro * o.virtual, more = o.micro / o.ranks * o.ranks;

    if (is_interleaved(g) && o.micro % o.ranks)
        tn_fail(g, TN_ERR_CONFIG, "parallel.schedule = interleaved takes as many micro-batches at a time as there are ranks in the pipeline, %u, and "
                "an update has %u of them (train.global_batch / (micro_batch dp)): %.0u%s%u would do, or another schedule", o.ranks, o.micro,
                more, more ? " or " : "", more + o.ranks);
    for (uint32_t r = 0; r < o.ranks; r++)
        for (uint32_t k = 0, a = ahead(&o, r); k < all + a; k++) {
            if (k < all)
                put(&o, r, TN_FORWARD, k);
            if (k >= a)
                put(&o, r, TN_BACKWARD, k - a);
        }
}

static const struct tn_option options[] = {
    {"schedule", "1f1b", "order of the micro-batches", 0, 0},
    {"virtual", "0", "stages on each rank of the pipeline under schedule = interleaved; 0: 2 there, else 1", 0, 64},
    {"stages", "", "blocks on each stage of the pipeline, such as 3,2; unset: stages of equal cost", 0, 0},
    {0},
};

static const struct tn_pass pp = {
    .struct_size = sizeof pp,
    .options = options,
    .forward = forward,
    .train = train,
    .schedule = schedule,
};

TN_PLUGIN("pp", "0.1.0", "pipeline parallelism: afab, 1f1b, interleaved", TN_PASS_ID, &pp);
