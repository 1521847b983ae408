/* report.c - what came out, as a table and as a document.
 *
 * A row is a group of tests: KIND or KIND/GROUP where a group has several. Behind the table stand the reasons of what
 * was not tried, and the failures with their problem and the command that repeats it: of a group the first few, since one
 * mistake makes many; the document has all. */
#include <jansson.h>
#include "base/status.h"
#include "suite.h"

#define SHOWN 5                                  /* failures of a group */

struct row {
    char name[64];
    uint32_t claimed, compared, n[CHECK_SKIPPED + 1];
    double worst;
};

uint32_t check_count(const struct check_list *l, uint32_t state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->n; i++)
        n += l->test[i].result.state == state;
    return n;
}

/* "kernels/einsum/17" -> "kernels/einsum", "file/note" -> "file" */
static size_t group_of(const char *name)
{
    const char *last = strrchr(name, '/');

    return last ? (size_t)(last - name) : strlen(name);
}

static struct row *find_row(struct row *rows, uint32_t *n, const char *name)
{
    const size_t k = group_of(name);

    for (uint32_t i = 0; i < *n; i++)
        if (strlen(rows[i].name) == k && !strncmp(rows[i].name, name, k))
            return &rows[i];
    snprintf(rows[*n].name, sizeof rows[*n].name, "%.*s", (int)k, name);
    return &rows[(*n)++];
}

static void print_row(FILE *f, const struct row *r)
{
    const uint32_t tried = r->n[CHECK_PASSED] + r->n[CHECK_FAILED];

    fprintf(f, "%-24s %7u %7u %7u %7u %8u %8u", r->name, r->claimed, tried, r->n[CHECK_PASSED],
            r->n[CHECK_FAILED], r->n[CHECK_DECLINED], r->n[CHECK_SKIPPED]);
    if (r->worst > 0)
        fprintf(f, " %8.3f", r->worst);
    else if (r->compared)
        fprintf(f, " %8d", 0);
    fputc('\n', f);
}

/* Its numbers were held against others, and so its worst error is known where it is 0, too. */
static int compared(const struct check_test *t)
{
    return t->result.state == CHECK_PASSED && t->result.variants &&
           (!strncmp(t->name, "kernels/", 8) || !strncmp(t->name, "gradient/", 9));
}

static void print_table(FILE *f, const struct check_list *l)
{
    struct row *rows = calloc(l->n + 2, sizeof *rows), all = {.name = "all"};
    uint32_t n = 0;

    fprintf(f, "%-24s %7s %7s %7s %7s %8s %8s %8s\n", "TESTS", "CLAIMED", "TRIED", "PASSED", "FAILED", "DECLINED", "SKIPPED",
            "WORST");
    for (uint32_t i = 0; i < l->n && rows; i++) {
        const struct check_result *t = &l->test[i].result;
        struct row *r = find_row(rows, &n, l->test[i].name);

        for (int k = 0; k < 2; k++, r = &all) {
            r->claimed++, r->n[t->state]++, r->compared += compared(&l->test[i]);
            r->worst = t->worst > r->worst ? t->worst : r->worst;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        print_row(f, &rows[i]);
    print_row(f, &all);
    free(rows);
}

/* Equal reasons once. */
static void print_skips(FILE *f, const struct check_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct check_test *t = &l->test[i];
        uint32_t before = 0, same = 0;

        if (t->result.state != CHECK_SKIPPED)
            continue;
        for (uint32_t k = 0; k < l->n; k++)
            if (l->test[k].result.state == CHECK_SKIPPED && !strcmp(l->test[k].result.why, t->result.why))
                before += k < i, same++;
        if (before)
            continue;
        fprintf(f, "\nskipped: %s%s", t->name, same > 1 ? "" : ":");
        if (same > 1)
            fprintf(f, " and %u more:", same - 1);
        fprintf(f, " %s\n", t->result.why);
    }
}

/* Nobody who reads of a declined problem for the first time knows that it is none. */
static void print_declined(FILE *f, const struct check_list *l)
{
    const uint32_t n = check_count(l, CHECK_DECLINED);

    if (n)
        fprintf(f, "\ndeclined: %u, which is right: a run asks the next plugin of backend.kernels; --json names them\n", n);
}

/* The first test that failed with the words of test i. */
static uint32_t first_like(const struct check_list *l, uint32_t i)
{
    uint32_t k = 0;

    while (l->test[k].result.state != CHECK_FAILED || strcmp(l->test[k].result.why, l->test[i].result.why))
        k++;
    return k;
}

/* Failed tests of the group of test i before it, or of all of it. */
static uint32_t failed_alike(const struct check_list *l, uint32_t i, uint32_t end)
{
    const size_t n = group_of(l->test[i].name);
    uint32_t k = 0;

    for (uint32_t j = 0; j < end; j++)
        k += l->test[j].result.state == CHECK_FAILED && group_of(l->test[j].name) == n &&
             !strncmp(l->test[j].name, l->test[i].name, n);
    return k;
}

static void print_failures(FILE *f, const struct check_subject *s, const struct check_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct check_test *t = &l->test[i];
        const int failed = t->result.state == CHECK_FAILED;
        const uint32_t before = failed ? failed_alike(l, i, i) : 0, like = failed ? first_like(l, i) : i;

        if (failed && before == SHOWN)
            fprintf(f, "\nFAILED %u more of %.*s; --json has them all\n", failed_alike(l, i, l->n) - SHOWN,
                    (int)group_of(t->name), t->name);
        if (failed && before < SHOWN)
            fprintf(f, "\nFAILED %s: %s\n    %s%s\n    again: tenon plugins check %s --only %s%s%s\n", t->name, t->what,
                    like < i ? "as " : "", like < i ? l->test[like].name : t->result.why, s->path, t->name,
                    *s->axis ? " --axis " : "", s->axis);
    }
}

void check_print(FILE *f, const struct check_subject *s, const struct check_list *l, double seconds)
{
    const uint32_t failed = check_count(l, CHECK_FAILED);

    fprintf(f, "%s %s, %s (%s)\n\n", s->card.note.name, s->card.note.version, s->path, s->card.note.provides);
    print_table(f, l);
    print_skips(f, l);
    print_declined(f, l);
    print_failures(f, s, l);
    if (failed)
        fprintf(f, "\n%u of %u failed", failed, failed + check_count(l, CHECK_PASSED));
    else
        fprintf(f, "\nall %u passed", check_count(l, CHECK_PASSED));
    fprintf(f, ", in %.1f s\n", seconds);
}

void check_print_list(FILE *f, const struct check_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        fprintf(f, "%-28s %s\n", l->test[i].name, l->test[i].what);
}

/* --- the document */

/* Words of a plugin may be cut, or were never UTF-8: then without what is not ASCII. */
static json_t *words(const char *text)
{
    json_t *o = json_string(text);
    char *plain = o ? NULL : strdup(text);

    for (char *c = plain; c && *c; c++)
        *c = (unsigned char)*c > 126 ? '?' : *c;
    if (plain)
        o = json_string(plain);
    free(plain);
    return o;
}

static json_t *test_object(const struct check_test *t)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:f}", "name", t->name, "what", t->what, "state",
                          check_state_name[t->result.state], "seconds", t->result.seconds);

    if (o && t->result.variants)
        json_object_set_new(o, "variants", json_integer(t->result.variants));
    if (o && t->result.worst > 0)
        json_object_set_new(o, "worst", json_real(t->result.worst));
    if (o && *t->result.why)
        json_object_set_new(o, "why", words(t->result.why));
    return o;
}

tn_status check_print_json(FILE *f, const struct check_subject *s, const struct check_list *l, double seconds)
{
    const struct tn_note *note = &s->card.note;
    json_t *tests = json_array(), *all;

    for (uint32_t i = 0; i < l->n; i++)
        json_array_append_new(tests, test_object(&l->test[i]));
    all = json_pack("{s:s, s:i, s:{s:s, s:s, s:s, s:s, s:s, s:i, s:i}, s:f, s:i, s:i, s:i, s:i, s:o}", "tenon", TN_VERSION,
                    "abi", TN_ABI, "plugin", "name", note->name, "version", note->version, "path", s->path,
                    "provides", note->provides, "build", s->card.build_id, "abi_min", (int)note->abi_min, "abi_max",
                    (int)note->abi_max, "seconds", seconds, "passed", (int)check_count(l, CHECK_PASSED), "failed",
                    (int)check_count(l, CHECK_FAILED), "declined", (int)check_count(l, CHECK_DECLINED), "skipped",
                    (int)check_count(l, CHECK_SKIPPED), "tests", tests);
    if (!all || json_dumpf(all, f, JSON_INDENT(1) | JSON_REAL_PRECISION(6)))
        return json_decref(all), tn_error(TN_ERR, "plugins check: the report could not be written as JSON");
    fputc('\n', f);
    json_decref(all);
    return TN_OK;
}
