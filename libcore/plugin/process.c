/* process.c - see process.h. A row for each thing: is it otherwise, what is said of it, how it is put back. */
#include "plugin/process.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HELD_FROM 10                             /* descriptors that nobody takes for a stream */

static int tiny_is_there(void)
{
    volatile float tiny = 1e-30f;

    return tiny * 1e-10f > 0;
}

static void look_at_files(struct tn_process *p)
{
    memset(&p->place, 0, sizeof p->place);
    memset(p->file, 0, sizeof p->file);
    if (stat(".", &p->place))
        memset(&p->place, 0, sizeof p->place);
    for (int i = 0; i < 3; i++)
        if (fstat(i, &p->file[i]))
            memset(&p->file[i], 0, sizeof p->file[i]);
}

static void look(struct tn_process *p)
{
    const char *locale = setlocale(LC_ALL, NULL);

    look_at_files(p);
    umask(p->creation = umask(0));
    p->rounding = fegetround(), p->traps = fegetexcept(), p->denormals = tiny_is_there();
    sigprocmask(SIG_SETMASK, NULL, &p->blocked);
    snprintf(p->locale, sizeof p->locale, "%s", locale ? locale : "");
}

void tn_process_note(struct tn_process *p)
{
    memset(p, 0, sizeof *p);
    look(p);
    fegetenv(&p->processor);
    p->folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        p->stream[i] = fcntl(i, F_DUPFD_CLOEXEC, HELD_FROM);
}

static int is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_rdev == b->st_rdev;
}

/* --- one for each thing */

static int other_streams(const struct tn_process *a, const struct tn_process *b)
{
    return !is_same(&a->file[0], &b->file[0]) || !is_same(&a->file[1], &b->file[1]) || !is_same(&a->file[2], &b->file[2]);
}

static void back_streams(const struct tn_process *p)
{
    for (int i = 0; i < 3; i++)
        if (p->stream[i] >= 0)
            dup2(p->stream[i], i);
}

static int other_folder(const struct tn_process *a, const struct tn_process *b)
{
    return !is_same(&a->place, &b->place);
}

static void back_folder(const struct tn_process *p)
{
    if (p->folder >= 0 && fchdir(p->folder))
        return;                                  /* it is gone: nowhere to go */
}

static int other_umask(const struct tn_process *a, const struct tn_process *b)
{
    return a->creation != b->creation;
}

static void back_umask(const struct tn_process *p)
{
    umask(p->creation);
}

static int other_locale(const struct tn_process *a, const struct tn_process *b)
{
    return strcmp(a->locale, b->locale) != 0;
}

static void back_locale(const struct tn_process *p)
{
    setlocale(LC_ALL, p->locale);
}

static int other_rounding(const struct tn_process *a, const struct tn_process *b)
{
    return a->rounding != b->rounding;
}

static int other_traps(const struct tn_process *a, const struct tn_process *b)
{
    return a->traps != b->traps;
}

static int other_denormals(const struct tn_process *a, const struct tn_process *b)
{
    return a->denormals != b->denormals;
}

static void back_processor(const struct tn_process *p)
{
    fesetenv(&p->processor);
}

static int other_signals(const struct tn_process *a, const struct tn_process *b)
{
    for (int i = 1; i < 32; i++)
        if (sigismember(&a->blocked, i) != sigismember(&b->blocked, i))
            return 1;
    return 0;
}

static void back_signals(const struct tn_process *p)
{
    sigprocmask(SIG_SETMASK, &p->blocked, NULL);
}

static const struct {
    int (*is_other)(const struct tn_process *a, const struct tn_process *b);
    void (*back)(const struct tn_process *p);
    const char *what;
} things[] = {
    {other_streams, back_streams, "closed or replaced stdin, stdout or stderr"},
    {other_folder, back_folder, "changed the working directory"},
    {other_umask, back_umask, "changed the umask"},
    {other_locale, back_locale, "changed the locale"},
    {other_rounding, back_processor, "changed the rounding of the processor"},
    {other_traps, back_processor, "made the processor trap"},
    {other_denormals, back_processor, "made the processor flush denormals to zero (linked with -ffast-math?)"},
    {other_signals, back_signals, "changed which signals are blocked"},
};
#define THINGS (sizeof things / sizeof *things)

int tn_process_compare(const struct tn_process *p, char *what, size_t room)
{
    struct tn_process now = {0};
    size_t k = 0;
    int n = 0;

    *what = 0;
    look(&now);
    for (size_t i = 0; i < THINGS; i++)
        if (things[i].is_other(p, &now)) {
            snprintf(what + k, room - k, "%s%s", n++ ? ", " : "", things[i].what);
            k += strlen(what + k);
        }
    return n;
}

void tn_process_restore(const struct tn_process *p)
{
    struct tn_process now = {0};

    look(&now);
    for (size_t i = 0; i < THINGS; i++)
        if (things[i].is_other(p, &now))
            things[i].back(p);
}

void tn_process_drop(struct tn_process *p)
{
    if (p->folder >= 0)
        close(p->folder);
    for (int i = 0; i < 3; i++)
        if (p->stream[i] >= 0)
            close(p->stream[i]);
    p->folder = p->stream[0] = p->stream[1] = p->stream[2] = -1;
}
