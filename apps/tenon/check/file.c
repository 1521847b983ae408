/* file.c - the file itself: what it exports and wants, what its note says, and what loading it does to the process.
 *
 * The loader refuses most of what is wrong (libcore/plugin); here is also what it lets pass and a careful author wants
 * to know. The symbols are read from the file, which was found whole before. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "suite.h"
#include "plugin/probe.h"

extern char **environ;

/* --- symbols */

struct symbols {
    const char *map, *text;                      /* the file; names */
    const Elf64_Sym *symbol;
    size_t bytes, n, text_bytes;
};

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
    if (!e->e_shoff || e->e_shoff % 8 || e->e_shoff + (uint64_t)e->e_shnum * sizeof(Elf64_Shdr) > out->bytes)
        check_skip(r, "the file has no table of sections, so its symbols cannot be listed");
    for (uint32_t i = 0; i < e->e_shnum; i++) {
        const Elf64_Shdr *all = (const void *)(out->map + e->e_shoff), *h = &all[i];

        if (h->sh_type != SHT_DYNSYM || h->sh_link >= e->e_shnum)
            continue;
        out->symbol = (const void *)(out->map + h->sh_offset), out->n = h->sh_size / sizeof *out->symbol;
        out->text = out->map + all[h->sh_link].sh_offset, out->text_bytes = all[h->sh_link].sh_size;
        if (h->sh_offset + h->sh_size > out->bytes ||
            all[h->sh_link].sh_offset + out->text_bytes > out->bytes || !out->text_bytes ||
            out->text[out->text_bytes - 1])
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
    uint64_t environment;
    char cwd[512], locale[64];
    int rounding, tasks;
    uint32_t denormals;                          /* is 1e-40 still a number? */
    struct sigaction action[32];
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
    volatile float tiny = 1e-30f;

    memset(p, 0, sizeof *p);
    for (char **e = environ; *e; e++)
        p->environment = sum_of(*e, p->environment);
    if (!getcwd(p->cwd, sizeof p->cwd))
        *p->cwd = 0;
    snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
    p->rounding = fegetround();
    p->tasks = count_tasks();
    p->denormals = tiny * 1e-10f > 0;
    for (int i = 1; i < 32; i++)
        sigaction(i, NULL, &p->action[i]);
}

static void same_process(struct check_run *r, const struct process *a, const char *when)
{
    struct process b;

    look(&b);
    if (a->environment != b.environment)
        check_fail(r, "%s it changed the environment", when);
    if (strcmp(a->cwd, b.cwd))
        check_fail(r, "%s it changed the working directory to %s", when, b.cwd);
    if (strcmp(a->locale, b.locale))
        check_fail(r, "%s it changed the locale to %s", when, b.locale);
    if (a->rounding != b.rounding)
        check_fail(r, "%s it changed the rounding of the processor", when);
    if (a->denormals != b.denormals)
        check_fail(r, "%s it made the processor flush denormals to zero; was it linked with -ffast-math?", when);
    if (b.tasks > a->tasks)
        check_fail(r, "%s it started %d threads; threads are the host's", when, b.tasks - a->tasks);
    for (int i = 1; i < 32; i++)
        if (a->action[i].sa_handler != b.action[i].sa_handler)
            check_fail(r, "%s it took signal %d (%s)", when, i, strsignal(i));
}

static void loads(struct check_run *r)
{
    const struct tn_loaded *p, *again;
    struct process before;

    look(&before);
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

    look(&before);
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

/* In reverse order of the start, by itself. */
static void stops(struct check_run *r)
{
    check_open(r);
    tn_plugins_close();
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
    check_add(l, loads, "loading leaves the process as it was: environment, signals, threads, rounding", "file/loads");
    check_add(l, probes, "the probes have no side effects and agree with themselves", "file/probes");
    check_add(l, constant, "the tables stay as they are", "file/tables");
    check_add(l, stops, "it stops", "file/stops");
}
