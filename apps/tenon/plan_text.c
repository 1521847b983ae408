/* plan_text.c - words and numbers of tenon plan: see plan.h. */
#include "plan.h"

const char *plan_size(double bytes, char out[32])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;

    while (bytes >= 1000 && u < 4)
        bytes /= 1000, u++;
    snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
    return out;
}

static void line(const char *name, double bytes, const char *note)
{
    char text[32];

    printf("%-18s %12s%s%s\n", name, plan_size(bytes, text), *note ? "   " : "", note);
}

void plan_print_model(const struct tn_session *s)
{
    const struct tn_model_config *m = tn_session_model(s);
    const struct tn_session_shape *h = tn_session_shape(s);

    printf("%-18s %s: %lld layers, %lld heads, width %lld, vocabulary %lld, positions %lld\n", "model",
           m->arch, (long long)m->n_layer, (long long)m->n_head, (long long)m->n_embd,
           (long long)m->vocab_size, (long long)m->block_size);
    printf("%-18s %lld sequences of %lld tokens, %lld x %lld\n", "update", (long long)h->global_batch,
           (long long)h->seq_len, (long long)h->n_micro, (long long)h->micro_batch);
    printf("%-18s %lld, %lld without %s\n", "parameters", (long long)h->n_parameters,
           (long long)(h->n_parameters - h->n_parameters_met + h->n_parameters_no_position),
           m->tie_embeddings ? "positions" : "embeddings");
    if (m->n_expert)
        printf("%-18s %lld, %lld without %s: %lld of %lld experts\n", "met by a token", (long long)h->n_parameters_met,
               (long long)h->n_parameters_no_position, m->tie_embeddings ? "positions" : "embeddings", (long long)m->top_k, (long long)m->n_expert);
}

void plan_print_memory(const struct tn_plan_report *r)
{
    char note[96], peak[32];

    printf("\nmemory of one rank\n");
    line("parameters", (double)r->parameters, "");
    line("optimizer state", (double)r->states, "");
    line("gradients", (double)r->gradients, "in the arena");
    line("activations", (double)r->arena - (double)r->gradients, "in the arena");
    snprintf(note, sizeof note, "%s alive at once at most", plan_size((double)r->live_peak, peak));
    line("arena", (double)r->arena, note);
    line("workspace", (double)r->workspace, "of kernels");
    line("inputs", (double)(r->inputs + r->uniforms), "");
    line("total", (double)r->total, "");
}

void plan_print_work(const struct tn_session *s, const struct tn_plan_report *r, double all_ranks)
{
    const struct tn_model_config *m = tn_session_model(s);
    const struct tn_session_shape *h = tn_session_shape(s);
    double tokens = (double)(h->global_batch * h->seq_len),
           all = r->flops_forward + r->flops_backward + r->flops_update;
    double model =
        (6.0 * (double)h->n_parameters_no_position + 6.0 * (double)(m->n_layer * m->n_embd * h->seq_len)) *
        tokens;

    printf("\nwork of one update\n");
    printf("%-18s %12.4g   forward %.4g, backward %.4g, update %.4g%s\n", "FLOPs", all, r->flops_forward,
           r->flops_backward, r->flops_update, h->world > 1 ? ", of the first rank" : "");
    if (h->world > 1)
        printf("%-18s %12.4g   of all %lld ranks\n", "", all_ranks, (long long)h->world);
    printf("%-18s %12.4g   6N + 6LCT for each of %.0f tokens%s\n", "FLOPs by formula", model, tokens,
           h->world > 1 ? ", of all ranks" : "");
    line("bytes moved", r->bytes_moved,
         h->world > 1 ? "by the first rank: read and written, each operand of a launch once"
                      : "read and written, each operand of a launch once");
}

/* --- launches */

/* "cpu 120, ref 3" */
void plan_print_launches(const struct tn_plan *plan, const struct tn_plan_report *r)
{
    const char *name[16];
    uint64_t count[16] = {0};
    uint32_t n = 0;
    struct tn_plan_launch l;

    for (uint32_t i = 0; i < plan->n_row; i++) {
        uint32_t k = 0;
        if (plan->row[i].kernel[0] < 0 && plan->row[i].kernel[1] < 0)
            continue;
        tn_plan_launch_at(plan, i, &l);
        while (k < n && strcmp(name[k], l.kernel))
            k++;
        if (k == n && n < 16)
            name[n++] = l.kernel;
        if (k < n)
            count[k] += l.micro;
    }
    printf("%-18s %12llu   ", "launches", (unsigned long long)r->launches);
    for (uint32_t k = 0; k < n; k++)
        printf("%s%s %llu", k ? ", " : "", name[k], (unsigned long long)count[k]);
    printf("; of %u nodes\n", r->nodes);
}

void plan_print_kernels(const struct tn_plan *plan)
{
    struct tn_plan_launch l;
    char workspace[32];

    printf("\n%-28s %-10s %-14s %-14s %-8s %5s %6s %10s %10s %10s\n", "list", "unit", "role", "operation",
           "kernels", "nodes", "times", "MFLOP", "MB", "workspace");
    for (uint32_t i = 0; i < plan->n_row; i++) {
        if (plan->row[i].kernel[0] < 0 && plan->row[i].kernel[1] < 0)
            continue;
        tn_plan_launch_at(plan, i, &l);
        printf("%-28s %-10s %-14s %-14s %-8s %5u %6u %10.3f %10.3f %10s\n", tn_list_name(l.list), l.unit,
               l.role, l.op, l.kernel, l.merged, l.micro, l.flops / 1e6, l.bytes / 1e6,
               l.workspace ? plan_size((double)l.workspace, workspace) : "");
    }
}
