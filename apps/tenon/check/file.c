/* file.c - the file itself: what it exports and wants, what its note says, and what loading it does to the process.
 *
 * The loader refuses most of what is wrong (libcore/plugin); here is also what it lets pass and a careful author wants
 * to know. The symbols are read from the file, which was found whole before. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "suite.h"
#include "plugin/probe.h"
#include "plugin/process.h"

extern char **environ;

/* --- symbols */

struct symbols {
    const char *map, *text;                      /* the file; names */
    const Elf64_Sym *symbol;
    size_t bytes, n, text_bytes;
};

/* No sum that could wrap. */
static int within(const struct symbols *s, uint64_t offset, uint64_t bytes)
{
    return offset <= s->bytes && bytes <= s->bytes - offset;
}

static void read_symbols(struct check_run *r, struct symbols *out)
{
    const int fd = open(r->subject->path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    const Elf64_Ehdr *e;

    *out = (struct symbols){0};
    if (fd < 0 || fstat(fd, &st))
        check_fail(r, "cannot be read: %s", strerror(errno));
    out->map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (out->map == MAP_FAILED)
        check_fail(r, "cannot be read: %s", strerror(errno));
    out->bytes = (size_t)st.st_size;
    e = (const void *)out->map;
    close(fd);
    if (!e->e_shoff || e->e_shoff % 8 || !within(out, e->e_shoff, (uint64_t)e->e_shnum * sizeof(Elf64_Shdr)))
        check_skip(r, "the file has no table of sections, so its symbols cannot be listed");
    for (uint32_t i = 0; i < e->e_shnum; i++) {
        const Elf64_Shdr *all = (const void *)(out->map + e->e_shoff), *h = &all[i];

        if (h->sh_type != SHT_DYNSYM || h->sh_link >= e->e_shnum)
            continue;
        out->symbol = (const void *)(out->map + h->sh_offset), out->n = h->sh_size / sizeof *out->symbol;
        out->text = out->map + all[h->sh_link].sh_offset, out->text_bytes = all[h->sh_link].sh_size;
        if (!within(out, h->sh_offset, h->sh_size) || !within(out, all[h->sh_link].sh_offset, out->text_bytes) ||
            !out->text_bytes || out->text[out->text_bytes - 1])
            check_fail(r, "its table of symbols is damaged");
    }
}

static const char *name_of(const struct symbols *s, size_t i)
{
    return s->symbol[i].st_name < s->text_bytes ? s->text + s->symbol[i].st_name : "?";
}

/* tn_plugin_entry and nothing else: whatever else is visible can take the place of a name of somebody else's. */
static void exports(struct check_run *r)
{
    struct symbols s;
    char others[400] = "";
    size_t k = 0;
    int entry = 0, n = 0;

    read_symbols(r, &s);
    for (size_t i = 1; i < s.n; i++) {
        const Elf64_Sym *y = &s.symbol[i];

        if (y->st_shndx == SHN_UNDEF || ELF64_ST_BIND(y->st_info) == STB_LOCAL || y->st_shndx == SHN_ABS)
            continue;
        if (!strcmp(name_of(&s, i), "tn_plugin_entry"))
            entry = 1;
        else if (n++ < 6)
            k += (size_t)snprintf(others + k, sizeof others - k, " %.50s", name_of(&s, i));
    }
    if (n)
        check_fail(r, "exports %d symbols beside tn_plugin_entry:%s%s; link it with a version script", n, others,
                   n > 6 ? " ..." : "");
    if (!entry)
        check_fail(r, "does not export tn_plugin_entry");
}

/* The host is not linked to: it passes its functions in a table. */
static void wants(struct check_run *r)
{
    static const char *const never[] = {"quick_exit", "setenv", "putenv", "unsetenv", "clearenv"};
    struct symbols s;

    read_symbols(r, &s);
    for (size_t i = 1; i < s.n; i++) {
        const char *name = name_of(&s, i);

        if (s.symbol[i].st_shndx != SHN_UNDEF)
            continue;
        if (!strncmp(name, "tn_", 3))
            check_fail(r, "wants the symbol %.100s, which a plugin gets through the host's table only", name);
        for (size_t k = 0; k < sizeof never / sizeof *never; k++)
            if (!strcmp(name, never[k]))
                check_fail(r, "calls %s, which a plugin may not", name);
    }
}

/* --- the note */

static void note(struct check_run *r)
{
    const struct tn_note *n = &r->subject->card.note;
    char id[sizeof n->provides];

    if (n->abi_min > n->abi_max || n->abi_max < TN_ABI)
        check_fail(r, "its note says levels %u to %u, and the headers are of level %d", n->abi_min, n->abi_max, TN_ABI);
    if (!*n->version)
        check_fail(r, "its note has no version");
    if (!*n->provides)
        check_fail(r, "its note provides nothing");
    for (const char *s = n->provides; *s; s += strspn(s, " ")) {
        const size_t k = strcspn(s, " ");

        snprintf(id, sizeof id, "%.*s", (int)k, s);
        if (!strncmp(id, "tenon.", 6) && !tn_interface_type(id))
            check_fail(r, "its note provides %s, which this host does not know", id);
        s += k;
    }
    if (n->cpu > tn_cpu_level())
        check_fail(r, "needs a CPU of level %u, this one has %u", n->cpu, tn_cpu_level());
}

/* --- loading */

struct process {
    struct tn_process common;                    /* what the loader would put back */
    uint64_t environment;
    int tasks, said;                             /* said: what stands for stdout */
    struct sigaction action[32];
    struct itimerval timer;
    struct rlimit limit[RLIM_NLIMITS];
    stack_t stack;                               /* of signal handlers */
};

static uint64_t sum_of(const char *s, uint64_t h)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h * 31 + 7;
}

static int count_tasks(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[200];
    int n = 0;

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "Threads:", 8))
            n = atoi(line + 8);
    if (f)
        fclose(f);
    return n;
}

static void look(struct process *p)
{
    for (char **e = environ; e && *e; e++)
        p->environment = sum_of(*e, p->environment);
    p->tasks = count_tasks();
    for (int i = 1; i < 32; i++)
        sigaction(i, NULL, &p->action[i]);
    getitimer(ITIMER_REAL, &p->timer);
    for (int i = 0; i < (int)RLIM_NLIMITS; i++)
        getrlimit(i, &p->limit[i]);
    sigaltstack(NULL, &p->stack);
}

/* What it prints on stdout goes to a file from here on, and what it starts is ours to see, however often it forks. */
static void look_first(struct process *p)
{
    memset(p, 0, sizeof *p);
    p->said = memfd_create("stdout", MFD_CLOEXEC);
    if (p->said >= 0)
        dup2(p->said, STDOUT_FILENO);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    tn_process_note(&p->common);
    look(p);
}

static int has_children(void)
{
    return waitpid(-1, NULL, WNOHANG) >= 0;
}

static void same_process(struct check_run *r, const struct process *a, const char *when)
{
    struct process b = {0};
    char what[400];

    if (tn_process_compare(&a->common, what, sizeof what)) {
        tn_process_restore(&a->common);          /* it is to be told */
        check_fail(r, "%s it %s", when, what);
    }
    fflush(stdout);
    if (a->said >= 0 && lseek(a->said, 0, SEEK_END) > 0)
        check_fail(r, "%s it wrote to stdout, which belongs to the program; what is to be said goes to the host's log", when);
    look(&b);
    if (a->environment != b.environment)
        check_fail(r, "%s it changed the environment", when);
    if (b.tasks > a->tasks)
        check_fail(r, "%s it started %d threads; threads are the host's", when, b.tasks - a->tasks);
    if (has_children())
        check_fail(r, "%s it started another process", when);
    for (int i = 1; i < 32; i++)
        if (a->action[i].sa_handler != b.action[i].sa_handler)
            check_fail(r, "%s it took signal %d (%s)", when, i, strsignal(i));
    if (a->timer.it_value.tv_sec != b.timer.it_value.tv_sec || a->timer.it_value.tv_usec != b.timer.it_value.tv_usec)
        check_fail(r, "%s it set the process's timer", when);
    if (memcmp(a->limit, b.limit, sizeof a->limit))
        check_fail(r, "%s it changed the limits of the process", when);
    if (a->stack.ss_sp != b.stack.ss_sp || (a->stack.ss_flags & SS_DISABLE) != (b.stack.ss_flags & SS_DISABLE))
        check_fail(r, "%s it changed the stack that signals are handled on", when);
}

static void loads(struct check_run *r)
{
    const struct tn_loaded *p, *again;
    struct process before;

    look_first(&before);
    p = check_open(r);
    same_process(r, &before, "as it was loaded,");
    check_must(r, tn_plugin_open(r->subject->path, &again) == TN_OK && again == p);
    if (!p->plugin.about || !*p->plugin.about)
        check_fail(r, "its about is empty");
    if (!p->plugin.version || strcmp(p->plugin.version, r->subject->card.note.version))
        check_fail(r, "its version is %s, that of its note %s", p->plugin.version ? p->plugin.version : "missing",
                   r->subject->card.note.version);
}

/* Everything that has a probe is asked twice: no side effects, the same answer. */
static void probes(struct check_run *r)
{
    const struct tn_loaded *p = check_open(r);
    struct tn_probe first, second;
    struct process before;

    look_first(&before);
    tn_plugin_ask(p, &first);
    same_process(r, &before, "as it was asked,");
    tn_plugin_ask(p, &second);
    for (uint32_t i = 0; i < first.offers; i++) {
        const struct tn_offer *a = &first.offer[i], *b = &second.offer[i];

        if (a->status < 0)
            check_fail(r, "the probe of %s failed: %s", a->id, a->why);
        if (a->score != b->score)
            check_fail(r, "the probe of %s says %u first and then %u", a->id, a->score, b->score);
        if (a->asked && !*a->why)
            check_fail(r, "the probe of %s gives no reason", a->id);
    }
}

/* Its stop, if it has one, comes back. */
static void stops(struct check_run *r)
{
    check_open(r);
    tn_plugins_close();
}

/* What runs behind main (destructors, atexit) neither holds a process nor chooses its status. */
static void ends(struct check_run *r)
{
    enum { OWN = 77 };
    int status = 0;
    pid_t pid;

#ifdef __SANITIZE_ADDRESS__
    check_skip(r, "the address sanitizer ends processes in its own way");
#endif
    fflush(NULL);
    pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        check_open(r);
        tn_plugins_close();
        exit(OWN);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        check_fail(r, "no process: %s", strerror(errno));
    if (WIFSIGNALED(status))
        check_fail(r, "as its process ended, it crashed: signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != OWN)
        check_fail(r, "its process was to end with status %d, and ended with %d", OWN, WEXITSTATUS(status));
}

/* A table is const: being asked changes nothing in it. */
static void constant(struct check_run *r)
{
    const struct tn_loaded *p = check_open(r);
    unsigned char *before[16] = {NULL};
    struct tn_probe probe;
    uint32_t n = 0, size;

    for (const struct tn_interface *i = p->plugin.interfaces; i->id && n < 16; i++, n++) {
        memcpy(&size, i->table, sizeof size);
        before[n] = memcpy(malloc(size), i->table, size);
    }
    tn_plugin_ask(p, &probe);
    for (uint32_t k = 0; k < n; k++) {
        memcpy(&size, before[k], sizeof size);
        if (memcmp(before[k], p->plugin.interfaces[k].table, size))
            check_fail(r, "its table of %s is not what it was when it was loaded", p->plugin.interfaces[k].id);
    }
}

void check_list_file(struct check_list *l, const struct check_subject *s)
{
    (void)s;
    check_add(l, note, "the note: levels, version, interfaces, CPU", "file/note");
    check_add(l, exports, "exactly one symbol is visible", "file/exports");
    check_add(l, wants, "nothing is wanted of the host, nor what a plugin may not call", "file/wants");
    check_add(l, loads, "loading leaves the process as it was: environment, streams, signals, threads, rounding, ...", "file/loads");
    check_add(l, probes, "the probes have no side effects and agree with themselves", "file/probes");
    check_add(l, constant, "the tables stay as they are", "file/tables");
    check_add(l, stops, "it stops", "file/stops");
    check_add(l, ends, "a process that has loaded it ends, with the status that was meant", "file/ends");
}
