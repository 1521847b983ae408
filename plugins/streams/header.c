/* header.c - what a rank believes of an operation, and what is said when two do not agree. */
#include "streams.h"

#define MAGIC 0x746e6f4eu

struct tn_header tn_header_of(const struct tn_op *op, uint64_t bytes)
{
    int counted = op->t.op == TN_ALL_REDUCE || op->t.op == TN_REDUCE_SCATTER;

    return (struct tn_header){
        .magic = MAGIC,
        .op = op->t.op == TN_RECV ? TN_SEND : op->t.op,
        .dtype = op->t.dtype,
        .reduce = counted ? op->t.reduce : 0,
        .root = op->t.op == TN_BROADCAST ? op->t.peer : 0,
        .sequence = op->t.sequence,
        .count = op->slice ? op->total : bytes / op->width,
        .total = op->total,
    };
}

static void header_say(const struct tn_header *h, uint32_t rank, char *out, size_t size)
{
    static const char *const reduction[] = {"", " sum", " max", " min"};
    char number[32] = "";

    if (h->sequence)
        snprintf(number, sizeof number, " %llu", (unsigned long long)h->sequence);
    if (h->op == TN_BARRIER)
        snprintf(out, size, "rank %u has barrier%s", rank, number);
    else
        snprintf(out, size, "rank %u has %s%s%s of %llu elements of %s", rank, tn_transfer_name(h->op),
                 number, h->reduce < 4 ? reduction[h->reduce] : "?", (unsigned long long)h->count,
                 tn_dtype_name(h->dtype));
    if (h->op == TN_BROADCAST)
        snprintf(out + strlen(out), size - strlen(out), " from rank %u of the group", h->root);
    if (h->total != h->count && h->total)
        snprintf(out + strlen(out), size - strlen(out), " (%llu in all)", (unsigned long long)h->total);
}

int tn_header_agree(const struct tn_header *a, const struct tn_header *b)
{
    return a->magic == b->magic && a->op == b->op && a->dtype == b->dtype && a->reduce == b->reduce &&
           a->root == b->root && a->count == b->count && a->total == b->total &&
           (a->sequence == b->sequence || !a->sequence || !b->sequence);
}

void tn_header_differ(struct tn_stream *s, const struct tn_header *theirs, const struct tn_header *ours)
{
    char text[440], them[120], us[120], group[100];

    header_say(theirs, s->world, them, sizeof them);
    header_say(ours, s->comm->world->rank, us, sizeof us);
    tn_comm_say(s->comm, group, sizeof group);
    snprintf(text, sizeof text, TN_SELF ": ranks do not agree in %s: %s, %s", group, them, us);
    tn_world_fail(s->comm->world, TN_ERR_SHAPE, text);
}
