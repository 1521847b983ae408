/* kernel.c - which operations, and a launch as a job.
 *
 * The base operations and no others, in fp32 (indices int32). A launch is told addresses of the device and
 * borrows the list of them: both are settled when it is put on the queue. */
#include <stdlib.h>
#include "isle.h"

static const char *const ops[] = {"einsum", "sum", "sumsq", "rowmax", "expand", "expr", "copy", "accum", "dropout",
                                  "embed", "embed_bwd", "pick", "pick_bwd",
#ifdef REEF
                                  "attention", "attn_bwd",
#endif
                                  NULL};

struct launching {
    struct isle_job job;
    const struct isle_kernel *kernel;
    struct isle_call call;
};

static void run_launch(struct isle_job *job)
{
    const struct launching *l = (const struct launching *)job;

    l->kernel->run(l->kernel, &l->call);
}

/* A number of the host's, which a real device would fault on. */
static tn_status not_ours(uint32_t i, const void *address)
{
    return tn_error(TN_ERR, "isle: operand %u of a launch is at %p, which is not memory of the device", i, address);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct isle_kernel *k = state;
    struct launching *x = malloc(sizeof *x);

    if (!x)
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a job");
    *x = (struct launching){.job.run = run_launch, .kernel = k};
    for (uint32_t i = 0; i < k->n_operand; i++) {
        if (l->buffer[i] && !isle_is_ours(l->buffer[i], 0)) {
            free(x);
            return not_ours(i, l->buffer[i]);
        }
        x->call.buffer[i] = isle_here(l->buffer[i]);
    }
    x->call.workspace = isle_here(l->workspace);
    x->call.uniform = isle_here(l->uniform);
    x->call.micro = l->micro;
    isle_put(l->queue, &x->job);
    return TN_OK;
}

/* Numbers of tokens and places, which are int32, are read, copied and sent. */
static int takes(const struct tn_problem *p)
{
    const int copies = !strcmp(p->op, "copy") && p->in[0].dtype == p->out[0].dtype;

    for (uint32_t i = 0; i < p->n_in + p->n_out; i++) {
        const struct tn_operand *o = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];

        if (o->dtype != TN_F32 && !(o->dtype == TN_I32 && (i < p->n_in || copies)))
            return 0;
    }
    return p->n_in + p->n_out <= ISLE_OPERANDS;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct isle_kernel *k = NULL;
    tn_status s;

    if (!takes(p))
        return TN_DECLINED;
    if (!strcmp(p->op, "dropout"))
        s = isle_dropout(p, &k, &out->workspace);
    else if (!strncmp(p->op, "att", 3))
        s = isle_attention(p, &k, &out->workspace);
    else if (!strncmp(p->op, "embed", 5) || !strncmp(p->op, "pick", 4))
        s = isle_table(p, &k, &out->workspace);
    else
        s = isle_nest(p, &k, &out->workspace);
    if (s)
        return s;
    k->n_operand = p->n_in + p->n_out;
    out->state = k, out->launch = launch, out->release = free;
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "for tests");
    return TN_OK;
}

const struct tn_kernels isle_kernels = {
    .struct_size = sizeof isle_kernels,
    .device = ISLE,
    .ops = ops,
    .probe = probe,
    .prepare = prepare,
};
