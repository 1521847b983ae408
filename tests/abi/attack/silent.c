/* silent.c - a communicator that fails without a reason, or answers what cannot be: -DATTACK=n. */
#include <tenon/comm.h>

#define IS(n) (ATTACK == (n))

struct tn_comm {
    int nothing;
};
struct tn_request {
    int nothing;
};
static struct tn_comm world;
static struct tn_request request;

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "always");
    return TN_OK;
}

static tn_status attack_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out)
{
    (void)rank, (void)size, (void)seconds;
    *out = IS(1) ? NULL : &world;
    return IS(2) ? TN_ERR : TN_OK;
}

static tn_status attack_group(struct tn_comm *w, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    (void)w, (void)ranks, (void)n;
    *out = &world;
    return IS(3) ? 4 : TN_OK;
}

static tn_status attack_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    (void)c, (void)t, (void)n, (void)stream;
    *out = IS(4) ? NULL : &request;
    return TN_OK;
}

static tn_status attack_wait(struct tn_request *r, double seconds)
{
    (void)r, (void)seconds;
    return IS(5) ? TN_ERR_TIMEOUT : IS(6) ? tn_error(TN_ERR_IO, "the fabric melts") : TN_OK;
}

static void nothing(struct tn_comm *c)
{
    (void)c;
}

static const char *const devices[] = {"cpu", NULL};
static const struct tn_comm_api api = {
    .struct_size = sizeof api, .devices = devices, .probe = probe, .open = attack_open, .group = attack_group,
    .start = attack_start, .wait = attack_wait, .abort = nothing, .close = nothing};
TN_PLUGIN("silent", "1", "an attack", TN_COMM_ID, &api);
