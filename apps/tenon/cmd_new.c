/* cmd_new.c - tenon plugins new: a folder with a plugin that builds, passes conformance and can be tried.
 *
 * Its files are those of templates/, which are sources that compile as they are but for a few words between @: the
 * name, and pieces that differ from kind to kind (what README says of it, how it is used and tried). They are in the
 * program, so it works uninstalled and is never of another version than the headers. Nothing that is there is
 * overwritten: the folder must not exist, and it goes again if it cannot be written whole. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/near.h"
#include "base/status.h"
#include "options.h"
#include "templates.h"

#define NAME_MAX_LENGTH 31                       /* of a plugin; the note has room for no more */
#define DEPTH 4                                  /* of words within words, so a template cannot name itself */

struct kind {
    const char *name, *other;                    /* other: what it may be called, too */
    const char *page;                            /* of the manual, and the header */
};
static const struct kind kinds[] = {
    {"backend", "device", "device"},      {"kernels", "kernel", "kernels"}, {"comm", "communicator", "comm"},
    {"optimizer", "optim", "optimizer"},  {"pass", "strategy", "pass"},     {"bootstrap", "launcher", "bootstrap"},
};
#define KINDS (sizeof kinds / sizeof *kinds)

struct fresh {                                   /* what is about to be made */
    const struct kind *kind;
    const char *name, *folder;
    char variable[2 * NAME_MAX_LENGTH];          /* the name as the beginning of environment variables */
};

static const struct kind *kind_find(const char *word)
{
    for (size_t i = 0; i < KINDS; i++)
        if (!strcmp(word, kinds[i].name) || !strcmp(word, kinds[i].other))
            return &kinds[i];
    return NULL;
}

static tn_status kind_unknown(const char *word)
{
    struct tn_near near = {.word = word};

    for (size_t i = 0; i < KINDS; i++)
        tn_near_try(&near, kinds[i].name);
    return tn_error(TN_ERR_CONFIG,
                    "plugins new: there is no kind %.60s%s%s%s; a plugin is a backend, kernels, comm, optimizer, pass "
                    "or bootstrap",
                    word, near.best ? "; did you mean " : "", near.best ? near.best : "", near.best ? "?" : "");
}

/* The rule of the note, and a letter first, so that it is a file name that nobody mistakes for something else. */
static tn_status check_name(const char *name)
{
    const size_t n = strlen(name);

    if (n > NAME_MAX_LENGTH)
        return tn_error(TN_ERR_CONFIG, "plugins new: the name %.60s has %zu characters; %d are the most", name, n,
                        NAME_MAX_LENGTH);
    if (*name < 'a' || *name > 'z' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") != n)
        return tn_error(TN_ERR_CONFIG,
                        "plugins new: \"%.60s\" is no name of a plugin; a small letter, then small letters, digits, _, . "
                        "and -",
                        name);
    return TN_OK;
}

static void name_variable(const char *name, char *out)
{
    for (; *name; name++)
        *out++ = *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name >= '0' && *name <= '9' ? *name : '_';
    *out = 0;
}

/* --- texts */

static const struct template_file *template_find(const char *name)
{
    for (const struct template_file *f = template_files; f->name; f++)
        if (!strcmp(f->name, name))
            return f;
    return NULL;
}

static void expand(FILE *out, const struct fresh *p, const struct template_file *f, int depth);

/* What stands for a word between @; 0: it is no word of ours. */
static int expand_word(FILE *out, const struct fresh *p, const char *word, size_t n, int depth)
{
    static const char *const pieces[][2] = {{"ABOUT", "about.md"}, {"USE", "use.ini"}, {"TRY", "try.mk"}};
    const char *const texts[][2] = {
        {"NAME", p->name}, {"ENV", p->variable}, {"KIND", p->kind->name}, {"PAGE", p->kind->page}};
    char name[64];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i][0]) == n && !memcmp(texts[i][0], word, n))
            return fputs(texts[i][1], out), 1;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (strlen(pieces[i][0]) == n && !memcmp(pieces[i][0], word, n) && depth < DEPTH) {
            snprintf(name, sizeof name, "%s/%s", p->kind->name, pieces[i][1]);
            expand(out, p, template_find(name), depth + 1);
            return 1;
        }
    return 0;
}

static void expand_line(FILE *out, const struct fresh *p, const char *line, int depth)
{
    while (*line) {
        const char *end = *line == '@' ? strchr(line + 1, '@') : NULL;

        if (end && expand_word(out, p, line + 1, (size_t)(end - line - 1), depth))
            line = end + 1;
        else
            fputc(*line++, out);
    }
}

/* A piece stands alone in its line, whose newline is that of the piece's last line. f NULL: nothing. */
static void expand(FILE *out, const struct fresh *p, const struct template_file *f, int depth)
{
    char last[512];

    for (size_t i = 0; f && f->line[i]; i++) {
        snprintf(last, sizeof last, "%s", f->line[i]);
        if (depth && !f->line[i + 1])
            last[strcspn(last, "\n")] = 0;
        expand_line(out, p, last, depth);
    }
}

/* --- files */

static tn_status write_file(const struct fresh *p, const char *template, const char *name)
{
    char *text = NULL, path[4096];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    tn_status s;

    if (!out)
        return tn_error(TN_ERR_MEMORY, "no memory for the text of %s", name);
    expand(out, p, template_find(template), 0);
    if (fclose(out)) {
        free(text);
        return tn_error(TN_ERR_MEMORY, "no memory for the text of %s", name);
    }
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    s = tn_file_write(path, text, bytes);
    free(text);
    return s;
}

static tn_status write_all(const struct fresh *p)
{
    char source[64], name[NAME_MAX_LENGTH + 4];
    tn_status s;

    snprintf(source, sizeof source, "%s/plugin.c", p->kind->name);
    snprintf(name, sizeof name, "%s.c", p->name);
    if ((s = write_file(p, source, name)) < 0 || (s = write_file(p, "Makefile", "Makefile")) < 0 ||
        (s = write_file(p, "README.md", "README.md")) < 0)
        return s;
    return write_file(p, "try.ini", "try.ini");
}

static tn_status make(const struct fresh *p)
{
    tn_status s;

    if (strlen(p->folder) > 4000)
        return tn_error(TN_ERR_CONFIG, "plugins new: the path of the folder has %zu characters", strlen(p->folder));
    if (mkdir(p->folder, 0777))
        return errno == EEXIST
                   ? tn_error(TN_ERR_CONFIG, "plugins new: %s is there already; nothing is overwritten, --dir names "
                                             "another folder", p->folder)
                   : tn_error(TN_ERR_IO, "plugins new: the folder %s cannot be made: %s", p->folder, strerror(errno));
    s = write_all(p);
    if (s < 0) {
        tn_path_remove(p->folder);
        return s;
    }
    printf("%s: %s.c, Makefile, README.md, try.ini\nNext: cd %s && make && make check && make try\n", p->folder,
           p->name, p->folder);
    return TN_OK;
}

static tn_status new(const struct options *o)
{
    struct fresh p = {.kind = kind_find(o->file[0]), .name = o->file[1], .folder = options_text(o, "dir")};
    tn_status s;

    if (!p.kind)
        return kind_unknown(o->file[0]);
    if ((s = check_name(p.name)) < 0)
        return s;
    name_variable(p.name, p.variable);
    if (!p.folder)
        p.folder = p.name;
    return make(&p);
}

static int cmd_new(int argc, char **argv)
{
    struct options o;
    tn_status s = options_parse(&new_command, argc, argv, &o);

    if (s >= 0)
        s = new(&o);
    options_free(&o);
    return command_end(s);
}

static const struct option new_options[] = {
    {.name = "dir", .value = "DIR", .help = "The folder to make, which must not be there; the name if left out"},
    {0},
};

const struct command new_command = {
    .name = "plugins new",
    .help = "Writes a plugin to begin with: source, Makefile, README and a configuration to try it",
    .usage = "KIND NAME [--dir DIR]",
    .detail = "KIND is backend (a device and its kernels), kernels (for the device cpu), comm, optimizer, pass (a "
              "strategy) or bootstrap. What is written builds against the installed headers, passes tenon plugins "
              "check, and trains by make try.",
    .options = new_options,
    .files_min = 2,
    .files_max = 2,
    .run = cmd_new,
};
