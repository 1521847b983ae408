/* @NAME@ - a bootstrap: which rank is this process, and where is rank 0, by variables of our own.
 *
 *     @ENV@_RANK=0..N-1   @ENV@_SIZE=N   @ENV@_PORT=free port of rank 0   @ENV@_HOST=its address, 127.0.0.1 if left out
 *
 * The host does the rest: rank 0 listens there, the others come, and they compare what they are about to do. Without
 * the variables this plugin is not meant (score 0, and why); with some of them and not others, or with words for
 * numbers, it is an error that names the variable: a guess would start N trainings of one process each. */
#include <stdlib.h>
#include <tenon/bootstrap.h>

static const char *variable(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

/* A decimal number from low to high. */
static tn_status number(const char *name, uint32_t low, uint32_t high, uint32_t *out)
{
    const char *text = variable(name);
    char *end = NULL;
    const unsigned long n = text ? strtoul(text, &end, 10) : 0;

    *out = 0;
    if (!text)
        return tn_error(TN_ERR_CONFIG, "@NAME@: @ENV@_RANK is set and %s is not", name);
    if (*text < '0' || *text > '9' || *end || n < low || n > high)
        return tn_error(TN_ERR_CONFIG, "@NAME@: %s is \"%.40s\", it must be a number from %u to %u", name, text,
                        (unsigned)low, (unsigned)high);
    *out = (uint32_t)n;
    return TN_OK;
}

/* All but struct_size is ours to fill; 0 is "the launcher does not say". */
static tn_status locate(struct tn_place *out)
{
    const char *host = variable("@ENV@_HOST");
    tn_status s;

    if (out->struct_size < sizeof *out)
        return tn_error(TN_ERR, "@NAME@: struct tn_place has %u bytes, %u are needed", (unsigned)out->struct_size,
                        (unsigned)sizeof *out);
    memset((char *)out + sizeof out->struct_size, 0, sizeof *out - sizeof out->struct_size);
    s = number("@ENV@_SIZE", 1, 1000000, &out->size);
    if (s >= 0)
        s = number("@ENV@_RANK", 0, out->size - 1, &out->rank);
    if (s >= 0 && out->size > 1)
        s = number("@ENV@_PORT", 1, 65535, &out->port);
    if (s < 0)
        return s;
    snprintf(out->address, sizeof out->address, "%s", host ? host : "127.0.0.1");
    snprintf(out->job, sizeof out->job, "@NAME@-%u", (unsigned)out->port);
    if (!host)                                   /* all on this host */
        out->local_rank = out->rank, out->local_size = out->size, out->nodes = 1;
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    struct tn_place p;
    tn_status s;

    *score = 0;
    if (!variable("@ENV@_RANK")) {
        snprintf(why, (size_t)why_size, "@ENV@_RANK is not set");
        return TN_OK;
    }
    p.struct_size = sizeof p;
    s = locate(&p);
    if (s < 0)
        return s;
    *score = 90;                                 /* whoever sets variables of this name means them */
    snprintf(why, (size_t)why_size, "@ENV@_RANK: rank %u of %u", (unsigned)p.rank, (unsigned)p.size);
    return TN_OK;
}

static const struct tn_bootstrap bootstrap = {
    .struct_size = sizeof bootstrap,
    .reserved0 = 0,
    .probe = probe,
    .locate = locate,
    .publish = NULL,
    .leave = NULL,
};

TN_PLUGIN("@NAME@", "0.1", "rank and address from @ENV@_RANK and the like", TN_BOOTSTRAP_ID, &bootstrap);
