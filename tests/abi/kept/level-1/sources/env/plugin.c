/* env - who am I, where are the others, by the launcher's variables: torchrun's or Slurm's.
 *
 * Without variables this is rank 0 of 1. A variable that is there and makes no sense, or contradicts another,
 * is an error that names it: a guess would start many trainings of one process each. For the same reason a
 * process of mpirun, whose variables do not say where rank 0 listens, is not taken for a lone one.
 *
 * Scores: torchrun 80, since it may have been started by Slurm or mpirun, one a host; Slurm 40, since within
 * its allocation others may have started us; alone 1. */
#include "env.h"

#include <unistd.h>

static tn_status locate_alone(struct tn_place *out)
{
    out->size = out->local_size = out->nodes = 1;
    snprintf(out->job, sizeof out->job, "alone-%ld", (long)getpid());
    return TN_OK;
}

/* Started by an MPI launcher, as one of several? Then its variable, else NULL. */
static const char *mpi_size(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *text = env_text(sizes[i]);
        if (text && strcmp(text, "1"))
            return sizes[i];
    }
    return NULL;
}

static void say_mpi(const char *name, char *out, size_t room)
{
    snprintf(out, room,
             "%s is %.20s, so mpirun or the like started this process, and its variables do not say where "
             "rank 0 is; bootstrap pmix, torchrun or srun know",
             name, env_text(name));
}

static const struct {
    int (*here)(void);
    tn_status (*locate)(struct tn_place *out);
    uint32_t score;
    const char *why;
} launchers[] = {
    {env_torchrun_here, env_torchrun_locate, 80, "torchrun's variables"},
    {env_slurm_here, env_slurm_locate, 40, "the variables of a Slurm step"},
};
#define LAUNCHERS (sizeof launchers / sizeof *launchers)

static size_t which(void)
{
    size_t i = 0;

    while (i < LAUNCHERS && !launchers[i].here())
        i++;
    return i;
}

static tn_status place(struct tn_place *out)
{
    size_t i = which();
    char why[256];

    memset((char *)out + sizeof out->struct_size, 0, sizeof *out - sizeof out->struct_size);
    if (i < LAUNCHERS)
        return launchers[i].locate(out);
    if (!mpi_size())
        return locate_alone(out);
    say_mpi(mpi_size(), why, sizeof why);
    return tn_error(TN_ERR_CONFIG, "env: %s", why);
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    struct tn_place p = {.struct_size = sizeof p};
    size_t i = which();
    tn_status s;

    *score = 0;
    if (i == LAUNCHERS && mpi_size()) { /* nothing is wrong, it is another plugin's business */
        say_mpi(mpi_size(), why, why_size);
        return TN_OK;
    }
    if ((s = place(&p)) < 0)
        return s;
    *score = i < LAUNCHERS ? launchers[i].score : 1;
    snprintf(why, why_size, "%s: %u rank%s", i < LAUNCHERS ? launchers[i].why : "no launcher's variables", p.size,
             p.size == 1 ? "" : "s");
    return TN_OK;
}

static tn_status locate(struct tn_place *out)
{
    if (out->struct_size < sizeof *out)
        return tn_error(TN_ERR, "env: struct tn_place has %u bytes, %zu are needed", out->struct_size,
                        sizeof *out);
    return place(out);
}

static const struct tn_bootstrap env = {
    .struct_size = sizeof env,
    .probe = probe,
    .locate = locate,
};

TN_PLUGIN("env", "1.0", "rank and address from torchrun's or Slurm's variables", TN_BOOTSTRAP_ID, &env);
