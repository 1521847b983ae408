/* report.c - what came out, as a table and as a document.
 *
 * A row is a group of tests: KIND or KIND/GROUP where a group has several. Behind the table stand the reasons of what
 * was not tried, and every failure with its problem and the command that repeats it. */
#include <jansson.h>
#include "base/status.h"
#include "suite.h"

struct row {
    char name[64];
    uint32_t claimed, n[CHECK_SKIPPED + 1];
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
    fputc('\n', f);
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
            r->claimed++, r->n[t->state]++;
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

static void print_failures(FILE *f, const struct check_subject *s, const struct check_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct check_test *t = &l->test[i];

        if (t->result.state == CHECK_FAILED)
            fprintf(f, "\nFAILED %s: %s\n    %s\n    again: tenon plugins check %s --only %s%s%s\n", t->name, t->what,
                    t->result.why, s->path, t->name, *s->axis ? " --axis " : "", s->axis);
    }
}

void check_print(FILE *f, const struct check_subject *s, const struct check_list *l, double seconds)
{
    const uint32_t failed = check_count(l, CHECK_FAILED);

    fprintf(f, "%s %s, %s (%s)\n\n", s->card.note.name, s->card.note.version, s->path, s->card.note.provides);
    print_table(f, l);
    print_skips(f, l);
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

static json_t *test_object(const struct check_test *t)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:f}", "name", t->name, "what", t->what, "state",
                          check_state_name[t->result.state], "seconds", t->result.seconds);

    if (o && t->result.variants)
        json_object_set_new(o, "variants", json_integer(t->result.variants));
    if (o && t->result.worst > 0)
        json_object_set_new(o, "worst", json_real(t->result.worst));
    if (o && *t->result.why)
        json_object_set_new(o, "why", json_stringn_nocheck(t->result.why, strlen(t->result.why)));
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
