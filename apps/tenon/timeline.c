/* timeline.c - see timeline.h. One line for each launch: what it needs of the arena, a bar of it, and where in the model. */
#include "timeline.h"
#include <stdlib.h>

#define BAR 24

static int is_launch(const struct tn_row *row)
{
    return row->kernel[0] >= 0 || row->kernel[1] >= 0;
}

static uint32_t highest(const uint64_t *x, uint32_t n)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < n; i++)
        at = x[i] > x[at] ? i : at;
    return at;
}

static void print_where(const struct tn_plan *plan, uint32_t r)
{
    const struct tn_row *row = &plan->row[r];

    printf("%s %s %s %s", tn_list_name(row->list), row->node->unit, row->node->role, row->op);
}

static void print_rows(const struct tn_plan *plan, const uint64_t *live, const uint64_t *resident)
{
    uint64_t most = 0;
    char bar[BAR + 1];

    printf("\nmemory of the arena by launch, MB: alive, at most so far%s\n%6s %11s %11s%s\n",
           resident ? "; resident since the first update began" : "", "launch", "alive", "so far",
           resident ? "    resident" : "");
    for (uint32_t r = 0; r < plan->n_row; r++) {
        size_t n = plan->live_peak ? (size_t)((double)live[r] / (double)plan->live_peak * BAR + 0.5) : 0;

        most = live[r] > most ? live[r] : most;
        if (!is_launch(&plan->row[r]))
            continue;
        snprintf(bar, sizeof bar, "%.*s", (int)n, "########################");
        printf("%6u %11.3f %11.3f", r, (double)live[r] / 1e6, (double)most / 1e6);
        if (resident)
            printf(" %11.3f", (double)resident[r] / 1e6);
        printf("  %-*s  ", BAR, bar);
        print_where(plan, r);
        printf("\n");
    }
}

void timeline_print(const struct tn_plan *plan, const uint64_t *resident)
{
    uint64_t *live = calloc(plan->n_row + 1u, sizeof *live);
    uint32_t peak;

    if (!live)
        return;
    tn_plan_timeline(plan, live);
    peak = highest(live, plan->n_row);
    print_rows(plan, live, resident);
    printf("at most %.3f MB alive, in launch %u: ", (double)live[peak] / 1e6, peak);
    print_where(plan, peak);
    printf("; the arena has %.3f MB\n", (double)plan->arena_bytes / 1e6);
    if (resident)
        printf("measured at most %.3f MB, first after launch %u; arena, workspace and inputs have %.3f MB by the plan\n",
               (double)resident[highest(resident, plan->n_row)] / 1e6, highest(resident, plan->n_row),
               (double)(plan->arena_bytes + plan->workspace_bytes + plan->run_bytes + plan->uniform_bytes) / 1e6);
    free(live);
}
