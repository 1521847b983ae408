/* slurm.c - the variables of a step, as srun sets them.
 *
 * In a batch script, before srun, there is a rank but no step size: such a process is a lone one. Rank 0 is
 * on the first node of the step's list. Its port cannot be asked for, so all compute the same one from the
 * numbers of job and step, below the range that systems hand out by themselves. */
#include "env.h"

int env_slurm_here(void)
{
    return env_text("SLURM_PROCID") && env_text("SLURM_STEP_NUM_TASKS");
}

/* "n[01,03-05],m7" -> "n01": of each bracket the first word. */
static tn_status first_node(const char *list, char *out, size_t room)
{
    size_t n = 0;
    int inside = 0, skip = 0, wrong = 0;

    for (const char *c = list; *c && (inside || *c != ','); c++) {
        if (*c == '[' || *c == ']') {
            if ((*c == '[') == inside)
                wrong = 1;
            inside = *c == '[';
            skip = 0;
            continue;
        }
        skip |= inside && (*c == ',' || *c == '-');
        if (!skip && n + 1 < room)
            out[n++] = *c;
    }
    out[n] = 0;
    if (inside || wrong || !n || n + 1 >= room ||
        strspn(out, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != n)
        return tn_error(TN_ERR_CONFIG, "env: SLURM_STEP_NODELIST is \"%.80s\", which names no first node",
                        list);
    return TN_OK;
}

static int take_number(const char **text, uint64_t *n)
{
    size_t digits = strspn(*text, "0123456789");

    *n = 0;
    if (!digits || digits > 7)
        return 0;
    for (size_t i = 0; i < digits; i++)
        *n = *n * 10 + (uint64_t)((*text)[i] - '0');
    *text += digits;
    return 1;
}

/* "3,1" or "2(x3),1": tasks of each node in turn. */
static tn_status read_tasks(struct tn_place *out)
{
    const char *text = env_text("SLURM_STEP_TASKS_PER_NODE"), *c = text;
    uint64_t tasks, times, node = 0, all = 0;

    if (!text)
        return tn_error(TN_ERR_CONFIG, "env: SLURM_STEP_TASKS_PER_NODE is not set, though srun sets it");
    for (;;) {
        times = 1;
        if (!take_number(&c, &tasks) ||
            (!strncmp(c, "(x", 2) && (c += 2, !take_number(&c, &times) || *c++ != ')')))
            return tn_error(TN_ERR_CONFIG, "env: SLURM_STEP_TASKS_PER_NODE is \"%.80s\", not like 2(x3),1",
                            text);
        if (out->node >= node && out->node < node + times)
            out->local_size = (uint32_t)tasks;
        node += times;
        all += tasks * times;
        if (!*c)
            break;
        if (*c++ != ',')
            return tn_error(TN_ERR_CONFIG, "env: SLURM_STEP_TASKS_PER_NODE is \"%.80s\", not like 2(x3),1",
                            text);
    }
    if (all != out->size || node != out->nodes || !out->local_size)
        return tn_error(TN_ERR_CONFIG,
                        "env: SLURM_STEP_TASKS_PER_NODE is \"%.80s\", but SLURM_STEP_NUM_TASKS is %u, "
                        "SLURM_STEP_NUM_NODES %u and SLURM_NODEID %u",
                        text, out->size, out->nodes, out->node);
    return TN_OK;
}

static tn_status read_address(struct tn_place *out)
{
    const char *list = env_text("SLURM_STEP_NODELIST");
    uint32_t job, step;
    tn_status s;

    if (!list)
        return tn_error(TN_ERR_CONFIG, "env: SLURM_STEP_NODELIST is not set, though srun sets it");
    if ((s = first_node(list, out->address, sizeof out->address)) < 0 ||
        (s = env_number("SLURM_JOB_ID", 0, UINT32_MAX, &job)) < 0 ||
        (s = env_number("SLURM_STEP_ID", 0, UINT32_MAX, &step)) < 0)
        return s;
    out->port = 12000 + (uint32_t)(((uint64_t)job * 31 + step * (uint64_t)7) % 18000);
    out->ports = ENV_PORTS;                      /* another job's may be taken */
    const char *restart = env_text("SLURM_RESTART_COUNT");
    snprintf(out->job, sizeof out->job, "slurm-%u.%u-%.10s", job, step, restart ? restart : "0");
    return TN_OK;
}

tn_status env_slurm_locate(struct tn_place *out)
{
    tn_status s;

    if ((s = env_number("SLURM_STEP_NUM_TASKS", 1, ENV_MAX_RANKS, &out->size)) < 0 ||
        (s = env_number("SLURM_PROCID", 0, out->size - 1, &out->rank)) < 0 ||
        (s = env_number("SLURM_STEP_NUM_NODES", 1, out->size, &out->nodes)) < 0 ||
        (s = env_number("SLURM_NODEID", 0, out->nodes - 1, &out->node)) < 0 || (s = read_tasks(out)) < 0 ||
        (s = env_number("SLURM_LOCALID", 0, out->local_size - 1, &out->local_rank)) < 0)
        return s;
    return read_address(out);
}
