/* compare.c - see compare.h. Records are sent as bytes, all of one size; ranks of a run are of one
 * architecture. */
#include "run/compare.h"
#include <stdlib.h>
#include "base/status.h"

struct record {
    uint64_t number, count, counts; /* of collectives so far on this axis; counts: hash of them */
    uint32_t op, dtype, reduce, transfers;
    char words[160];
};

struct tn_compare_ticket {
    struct tn_compare_ticket *next;
    struct tn_request *request;
    struct record record, mine; /* record: on its way; mine: what a receiver expects */
    int64_t peer;               /* rank of the world */
    int axis;
};

struct tn_compare {
    struct tn_world *world;
    const struct tn_comm_api *comm;
    double seconds;
    uint64_t number[TN_AXES];
    struct record mine, *all;       /* all: room for the largest group */
    struct tn_compare_ticket *sent; /* may still be on their way */
    int64_t *ranks;
};

struct tn_compare *tn_compare_new(struct tn_world *world, const struct tn_comm_api *comm, double seconds)
{
    struct tn_compare *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    *c = (struct tn_compare){.world = world, .comm = comm, .seconds = seconds};
    c->all = calloc(world->size, sizeof *c->all);
    c->ranks = calloc(world->size, sizeof *c->ranks);
    if (c->all && c->ranks)
        return c;
    tn_compare_free(c);
    return NULL;
}

void tn_compare_free(struct tn_compare *c)
{
    if (!c)
        return;
    for (struct tn_compare_ticket *t = c->sent, *next; t; t = next) {
        next = t->next;
        c->comm->wait(t->request, c->seconds);
        free(t);
    }
    free(c->all);
    free(c->ranks);
    free(c);
}

/* --- words */

static const char *op_name(uint32_t op)
{
    static const char *const name[] = {[TN_ALL_REDUCE] = "all_reduce",
                                       [TN_ALL_GATHER] = "all_gather",
                                       [TN_REDUCE_SCATTER] = "reduce_scatter",
                                       [TN_ALL_TO_ALL] = "all_to_all",
                                       [TN_BROADCAST] = "broadcast",
                                       [TN_SEND] = "send",
                                       [TN_RECV] = "send",
                                       [TN_BARRIER] = "barrier"};

    return op < sizeof name / sizeof *name && name[op] ? name[op] : "?";
}

static const char *dtype_name(uint32_t dtype)
{
    static const char *const name[] = {
        [TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16", [TN_I32] = "int32",
        [TN_F64] = "fp64", [TN_I64] = "int64", [TN_U8] = "uint8"};

    return dtype < sizeof name / sizeof *name && name[dtype] ? name[dtype] : "?";
}

static void say(const struct record *r, int64_t rank, char *out, size_t room)
{
    snprintf(out, room, "rank %lld is at %.150s, number %llu: %s of %llu elements of %s", (long long)rank,
             r->words, (unsigned long long)r->number, op_name(r->op), (unsigned long long)r->count,
             dtype_name(r->dtype));
}

static int same(const struct record *a, const struct record *b)
{
    return a->number == b->number && a->count == b->count && a->counts == b->counts && a->op == b->op &&
           a->dtype == b->dtype && a->reduce == b->reduce && a->transfers == b->transfers &&
           !strcmp(a->words, b->words);
}

static tn_status differ(const struct record *a, int64_t rank_a, const struct record *b, int64_t rank_b,
                        int axis)
{
    char one[280], other[280];

    say(a, rank_a, one, sizeof one);
    say(b, rank_b, other, sizeof other);
    char text[700];
    snprintf(text, sizeof text, "the ranks of %s are not in the same collective: %s; %s", tn_axis_name[axis],
             one, other);
    return tn_error_long(TN_ERR, text);
}

/* --- what is told */

static uint64_t hash(uint64_t h, uint64_t x)
{
    return (h ^ x) * 1099511628211u;
}

static void write_record(struct record *r, const struct tn_transfer *t, uint32_t n, uint64_t number,
                         uint32_t size, const char *words)
{
    memset(r, 0, sizeof *r);
    r->number = number, r->op = t->op, r->dtype = t->dtype, r->reduce = t->reduce, r->transfers = n,
    r->count = t->count;
    snprintf(r->words, sizeof r->words, "%s", words);
    if (t->op == TN_ALL_TO_ALL)
        return; /* what one sends and another gets differs by right */
    for (uint32_t i = 0; i < n; i++) {
        r->counts = hash(hash(hash(r->counts, t[i].op), t[i].dtype), t[i].count);
        for (uint32_t k = 0; k < size && t[i].counts; k++) {
            r->counts = hash(r->counts, t[i].counts[k]);
            r->count += i ? 0 : t[i].counts[k];
        }
    }
}

static tn_status transact(struct tn_compare *c, struct tn_comm *group, int axis, const struct tn_transfer *t)
{
    struct tn_request *request;
    tn_status s;

    tn_world_waits(c->world, c->mine.words, c->number[axis], -1);
    s = c->comm->start(group, t, 1, NULL, &request);
    if (!s)
        s = c->comm->wait(request, c->seconds);
    if (s)
        return tn_world_fail(c->world, NULL, c->mine.words, c->number[axis], -1);
    tn_world_waits(c->world, NULL, 0, -1);
    return TN_OK;
}

static tn_status together(struct tn_compare *c, struct tn_comm *group, int axis,
                          const struct tn_transfer *list, uint32_t n, const char *words)
{
    uint32_t size = (uint32_t)c->world->mesh.size[axis];
    struct tn_transfer t = {
        .op = TN_ALL_GATHER, .dtype = TN_U8, .from = &c->mine, .to = c->all, .count = sizeof c->mine};
    tn_status s;

    write_record(&c->mine, list, n, ++c->number[axis], size, words);
    if ((s = transact(c, group, axis, &t)))
        return s;
    tn_mesh_group(&c->world->mesh, axis, c->ranks);
    for (uint32_t r = 1; r < size; r++)
        if (!same(&c->all[r], &c->all[0]))
            return differ(&c->all[0], c->ranks[0], &c->all[r], c->ranks[r], axis);
    return TN_OK;
}

/* --- sends and receives */

/* Frees what has arrived of the records that were sent. */
static void reap(struct tn_compare *c)
{
    for (struct tn_compare_ticket **at = &c->sent, *t; (t = *at);) {
        if (c->comm->wait(t->request, 0) == TN_DECLINED) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        free(t);
    }
}

/* A record to the receiver of t, or from its sender; added to the list. */
static tn_status begin(struct tn_compare *c, struct tn_comm *group, int axis, const struct tn_transfer *t,
                       const char *words, struct tn_compare_ticket **list)
{
    struct tn_compare_ticket *k = calloc(1, sizeof *k);
    struct tn_transfer one = {.op = t->op, .dtype = TN_U8, .peer = t->peer, .count = sizeof k->record};
    tn_status s;

    if (!k)
        return tn_error(TN_ERR_MEMORY, "no memory for backend.debug");
    tn_mesh_group(&c->world->mesh, axis, c->ranks);
    k->axis = axis, k->peer = c->ranks[t->peer];
    write_record(&k->mine, t, 1, 0, 0, words);
    k->record = k->mine;
    one.from = one.to = &k->record;
    s = c->comm->start(group, &one, 1, NULL, &k->request);
    if (s) {
        free(k);
        return tn_world_fail(c->world, NULL, "telling what is next (backend.debug)", 0, -1);
    }
    k->next = *list;
    *list = k;
    return TN_OK;
}

static tn_status apart(struct tn_compare *c, struct tn_comm *group, int axis, const struct tn_transfer *list,
                       uint32_t n, const char *words, struct tn_compare_ticket **out)
{
    tn_status s = TN_OK;

    reap(c);
    for (uint32_t i = 0; i < n && !s; i++)
        s = begin(c, group, axis, &list[i], words, list[i].op == TN_SEND ? &c->sent : out);
    return s;
}

tn_status tn_compare_start(struct tn_compare *c, struct tn_comm *group, int axis,
                           const struct tn_transfer *list, uint32_t n, const char *words,
                           struct tn_compare_ticket **out)
{
    *out = NULL;
    return list[0].op == TN_SEND || list[0].op == TN_RECV ? apart(c, group, axis, list, n, words, out)
                                                          : together(c, group, axis, list, n, words);
}

static tn_status compare(struct tn_compare *c, const struct tn_compare_ticket *t)
{
    const struct record *got = &t->record, *mine = &t->mine;

    if (c->comm->wait(t->request, c->seconds) < 0)
        return tn_world_fail(c->world, NULL, mine->words, 0, t->peer);
    if (got->count == mine->count && got->dtype == mine->dtype && !strcmp(got->words, mine->words))
        return TN_OK;
    return differ(got, t->peer, mine, tn_mesh_rank(&c->world->mesh), t->axis);
}

tn_status tn_compare_end(struct tn_compare *c, struct tn_compare_ticket **list)
{
    tn_status s = TN_OK;

    for (struct tn_compare_ticket *t = *list, *next; t; t = next) {
        tn_status one = compare(c, t);

        next = t->next;
        s = s ? s : one;
        free(t);
    }
    *list = NULL;
    return s;
}
