/* cut.c - see cut.h. */
#include "cut.h"
#include <stdlib.h>

struct pp_unit *pp_find(const struct pp_cut *c, const char *name)
{
    for (uint32_t i = 0; i < c->units; i++)
        if (c->unit[i].name == name)
            return &c->unit[i];
    return NULL;
}

static void no_memory(struct tn_graph *g)
{
    tn_fail(g, TN_ERR_MEMORY, "no memory to cut the model into stages");
}

static void add_unit(struct tn_graph *g, struct pp_cut *c, const char *name)
{
    struct pp_unit *more = realloc(c->unit, (c->units + 1) * sizeof *c->unit);

    if (!more) {
        no_memory(g);
        return;
    }
    c->unit = more;
    c->unit[c->units++] = (struct pp_unit){.name = name};
}

static void list_units(struct tn_graph *g, struct pp_cut *c)
{
    tn_each_node(g, n) {
        if (tn_phase(n) != TN_FORWARD)
            continue;
        if (!pp_find(c, tn_unit(n)))
            add_unit(g, c, tn_unit(n));
        if (pp_find(c, tn_unit(n)))
            pp_find(c, tn_unit(n))->cost += tn_flops(n);
    }
}

/* The stages whose dearest is cheapest: in a sum of eighth powers the largest decides, and among equals
 * evenness does. What is still open goes to later stages, which keep fewer micro-batches. best[s][i]: of the
 * first i units on s stages. */
static void balance(struct tn_graph *g, struct pp_cut *c)
{
    uint32_t row = c->units + 1, *first = calloc((size_t)(c->stages + 1) * row, sizeof *first);
    double *best = calloc((size_t)(c->stages + 1) * row, sizeof *best), all = 0;

    if (!first || !best)
        no_memory(g);
    for (uint32_t i = 0; i < c->units; i++)
        all += c->unit[i].cost;
    for (uint32_t s = 0; s <= c->stages && first && best; s++)
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
    for (uint32_t s = c->stages, i = c->units; s && first && best; i = first[s-- * row + i])
        for (uint32_t j = first[s * row + i]; j < i; j++)
            c->unit[j].stage = s - 1;
    free(first);
    free(best);
}

static int is_block(const struct pp_unit *u)
{
    return !strncmp(u->name, "block", 5);
}

/* As the list says: blocks on each stage. What is before the blocks is on the first stage, after them on the
 * last. */
static void deal(struct tn_graph *g, struct pp_cut *c, const char *list)
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
        tn_fail(g, TN_ERR_CONFIG,
                "parallel.stages = %s: there are %u stages for %u blocks, so it must be %u numbers of blocks "
                "with this sum, with commas between them, none 0 but the first and the last",
                list, c->stages, blocks, c->stages);
}

struct pp_cut pp_cut_units(struct tn_graph *g, const char *axis, uint32_t stages_per_rank)
{
    struct pp_cut c = {.stages = (uint32_t)tn_axis_size(g, axis) * stages_per_rank};

    list_units(g, &c);
    if (c.stages > c.units)
        tn_fail(g, TN_ERR_CONFIG,
                "parallel.%s = %lld makes %u stages, and the model has only %u parts (its blocks, and what "
                "is before and after them): fewer ranks, or fewer stages on each",
                axis, (long long)tn_axis_size(g, axis), c.stages, c.units);
    else if (*tn_option_text(g, "stages"))
        deal(g, &c, tn_option_text(g, "stages"));
    else
        balance(g, &c);
    return c;
}
