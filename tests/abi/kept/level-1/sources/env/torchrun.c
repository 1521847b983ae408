/* torchrun.c - RANK, WORLD_SIZE and their like.
 *
 * torchrun sets all of them; a person who starts the ranks by hand sets RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT. Then, on a loopback address all ranks are on this host, else each is taken to have its own. */
#include "env.h"

int env_torchrun_here(void)
{
    return env_text("RANK") || env_text("WORLD_SIZE");
}

static int is_loopback(const char *address)
{
    return !strcmp(address, "localhost") || !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

static tn_status read_address(struct tn_place *out)
{
    const char *address = env_text("MASTER_ADDR");
    tn_status s;

    if (!address && out->size == 1)
        return TN_OK;
    if (!address)
        return tn_error(TN_ERR_CONFIG,
                        "env: MASTER_ADDR is not set, WORLD_SIZE is %u; it is the host of rank 0", out->size);
    if (strlen(address) >= sizeof out->address)
        return tn_error(TN_ERR_CONFIG, "env: MASTER_ADDR has %zu characters, no address has",
                        strlen(address));
    if ((s = env_number("MASTER_PORT", 1, 65535, &out->port)) < 0)
        return s;
    snprintf(out->address, sizeof out->address, "%s", address);
    return TN_OK;
}

static tn_status read_local(struct tn_place *out)
{
    tn_status s;

    if (!env_text("LOCAL_RANK") && !env_text("LOCAL_WORLD_SIZE")) {
        int together = out->size == 1 || is_loopback(out->address);
        out->local_rank = together ? out->rank : 0;
        out->local_size = together ? out->size : 1;
        return TN_OK;
    }
    if ((s = env_number("LOCAL_WORLD_SIZE", 1, out->size, &out->local_size)) < 0)
        return s;
    return env_number("LOCAL_RANK", 0, out->local_size - 1, &out->local_rank);
}

/* Hosts are as many as the launcher says, or as the local size divides the world into. */
static tn_status read_node(struct tn_place *out)
{
    tn_status s;

    out->nodes = (out->size + out->local_size - 1) / out->local_size;
    out->node = out->rank / out->local_size;
    if (env_text("GROUP_WORLD_SIZE") && (s = env_number("GROUP_WORLD_SIZE", 1, out->size, &out->nodes)) < 0)
        return s;
    if (env_text("GROUP_RANK"))
        return env_number("GROUP_RANK", 0, out->nodes - 1, &out->node);
    return TN_OK;
}

tn_status env_torchrun_locate(struct tn_place *out)
{
    const char *run = env_text("TORCHELASTIC_RUN_ID"), *restart = env_text("TORCHELASTIC_RESTART_COUNT");
    tn_status s;

    if ((s = env_number("WORLD_SIZE", 1, ENV_MAX_RANKS, &out->size)) < 0 ||
        (s = env_number("RANK", 0, out->size - 1, &out->rank)) < 0 || (s = read_address(out)) < 0 ||
        (s = read_local(out)) < 0 || (s = read_node(out)) < 0)
        return s;
    if (run)
        out->ports = ENV_PORTS;                  /* the agent may own the port itself */
    snprintf(out->job, sizeof out->job, "torchrun-%.40s-%.10s", run ? run : "none", restart ? restart : "0");
    return TN_OK;
}
