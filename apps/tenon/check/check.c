/* check.c - the whole of a check: find the file, ask it, list the tests, run them, report. */
#include <unistd.h>
#include <errno.h>
#include "base/near.h"
#include "base/pool.h"
#include "base/status.h"
#include "suite.h"
#include "plugin/registry.h"

/* --- which file */

/* A path has a slash or ends in .so; anything else is the name of a plugin. */
static int is_path(const char *word)
{
    const size_t n = strlen(word);

    return strchr(word, '/') || (n > 3 && !strcmp(word + n - 3, ".so"));
}

static const char *find_name(struct tn_registry *all, const char *name)
{
    for (const struct tn_candidate *c = NULL; (c = tn_registry_each(all, c));)
        if (c->status >= 0 && !strcmp(c->card.note.name, name))
            return c->path;
    return NULL;
}

static tn_status no_such(struct tn_registry *all, const char *name)
{
    struct tn_near near = {.word = name};

    for (const struct tn_candidate *c = NULL; (c = tn_registry_each(all, c));)
        tn_near_try(&near, c->card.note.name);
    return tn_error(TN_ERR_CONFIG, "plugins check: there is no plugin %.100s; %s%s%s, or give the path of a file", name,
                    near.best ? "did you mean " : "tenon plugins lists what there is", near.best ? near.best : "",
                    near.best ? "?" : "");
}

static tn_status find(const struct check_wish *w, struct check_subject *s)
{
    struct tn_registry *all = NULL;
    tn_status st = tn_registry_open(w->plugins_path, &all);
    const char *ref = st < 0 ? NULL : find_name(all, "ref");
    char why[TN_WHY_SIZE];

    snprintf(s->ref, sizeof s->ref, "%s", ref ? ref : "");
    s->plugins_path = w->plugins_path;
    if (st >= 0) {
        const char *path = is_path(w->plugin) ? w->plugin : find_name(all, w->plugin);

        s->path = path ? strdup(path) : NULL;
        if (!s->path)
            st = no_such(all, w->plugin);
        else if ((st = tn_elf_check(s->path, &s->card, why)) < 0)
            st = tn_error_long(TN_ERR_INPUT, why);
        else if (!strcmp(s->card.note.name, "ref"))
            snprintf(s->ref, sizeof s->ref, "%s", s->path);
    }
    tn_registry_close(all);
    return st;
}

/* --- which tests */

static int is_chosen(const struct check_test *t, const char *only)
{
    for (const char *at = only; *at; at += strspn(at, ",")) {
        const size_t n = strcspn(at, ",");

        if (!strncmp(t->name, at, n) && (!t->name[n] || t->name[n] == '/'))
            return 1;
        at += n;
    }
    return 0;
}

static tn_status choose(struct check_list *l, const char *only)
{
    uint32_t n = 0;

    if (!only)
        return TN_OK;
    for (uint32_t i = 0; i < l->n; i++)
        if (is_chosen(&l->test[i], only))
            l->test[n++] = l->test[i];
    l->n = n;
    return n ? TN_OK : tn_error(TN_ERR_CONFIG, "plugins check: no test of this plugin is %s; --list names them", only);
}

/* --- a launcher */

/* By the variables of mpirun, srun and torchrun: nothing may be loaded here that would take a rank's place. */
static void find_launcher(struct check_subject *s)
{
    static const struct {
        const char *rank, *size, *job, *local, *local_size;
    } known[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "PMI_JOBID", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
        {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known && !s->size; i++) {
        const char *rank = getenv(known[i].rank), *size = getenv(known[i].size), *job = getenv(known[i].job);

        if (!rank || !size)
            continue;
        s->rank = (uint32_t)atoi(rank), s->size = (uint32_t)atoi(size);
        s->local = getenv(known[i].local) ? (uint32_t)atoi(getenv(known[i].local)) : s->rank;
        s->local_size = getenv(known[i].local_size) ? (uint32_t)atoi(getenv(known[i].local_size)) : 0;
        snprintf(s->job, sizeof s->job, "%.40s", job ? job : "job");
        for (char *c = s->job; *c; c++)
            *c = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ? *c : '-';
    }
}

/* --- all of it */

static void say_failure(const struct check_test *t)
{
    if (t->result.state == CHECK_FAILED && isatty(STDERR_FILENO))
        fprintf(stderr, "failed: %s\n", t->name);
}

static tn_status run(const struct check_wish *w, struct check_subject *s, struct check_list *l, int *code)
{
    const double begin = check_now();
    tn_status st = check_run_all(s, l, w->jobs ? w->jobs : tn_cpus(), say_failure);

    check_keep_end(s);                           /* a document is read to its end: nobody else holds the pipe then */
    if (st >= 0 && w->json && !s->rank)
        st = check_print_json(stdout, s, l, check_now() - begin);
    else if (st >= 0 && (!s->rank || check_count(l, CHECK_FAILED)))
        check_print(s->rank ? stderr : stdout, s, l, check_now() - begin);
    *code = check_count(l, CHECK_FAILED) > 0;
    return st;
}

tn_status check_plugin(const struct check_wish *w, int *code)
{
    struct check_subject s = {0};
    struct check_list l = {0};
    tn_status st = find(w, &s);

    *code = 0;
    find_launcher(&s);
    if (st >= 0 && !realpath(s.path, s.real))
        st = tn_error(TN_ERR_INPUT, "%s: %s", s.path, strerror(errno));
    snprintf(s.axis, sizeof s.axis, "%s", w->axis ? w->axis : "");
    if (st >= 0)
        st = check_keep_begin(&s);
    if (st >= 0)
        st = check_ask(&s, w->seconds);
    if (st >= 0)
        check_list_all(&l, &s), st = s.rank ? TN_OK : choose(&l, w->only);
    for (uint32_t i = 0; i < l.n && w->seconds > 0; i++)
        l.test[i].limit = w->seconds;
    if (st >= 0 && w->list)
        check_print_list(stdout, &l);
    else if (st >= 0)
        st = run(w, &s, &l, code);
    check_keep_end(&s);
    free(l.test);
    free(s.path);
    return st;
}
