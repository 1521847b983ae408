/* textscan.c - the words of a graph's text: names, numbers, values, layouts, shapes.
 *
 * The reader stands at a place in a line; what is asked for is passed, and if something else is there the
 * first error says so with line and column, after which every call does nothing and returns something
 * harmless. */
#include "graph/textscan.h"
#include <errno.h>
#include <stdlib.h>

void scan_fail_at(struct reader *r, const char *at, const char *fmt, ...)
{
    va_list ap;
    char why[400];

    if (r->failed)
        return;
    r->failed = 1;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    tn_error(TN_ERR_INPUT, "graph text, line %u, column %u: %s", r->number, (uint32_t)(at - r->line) + 1,
             why);
}

/* The graph's own error, if there is one, as that of this place. */
int scan_graph_failed(struct reader *r, const char *at)
{
    if (r->g->status)
        scan_fail_at(r, at, "%s", r->g->error ? r->g->error : "out of memory");
    return r->failed;
}

/* --- words */

void scan_space(struct reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')
        r->at++;
}

int scan_line_ends(struct reader *r)
{
    scan_space(r);
    return !*r->at || *r->at == '\n';
}

/* Is this the next thing? Then it is passed. */
int scan_accept(struct reader *r, const char *text)
{
    size_t n = strlen(text);

    scan_space(r);
    if (r->failed || strncmp(r->at, text, n) ||
        (text_is_word_char(text[n - 1]) && text_is_word_char(r->at[n])))
        return 0;
    r->at += n;
    return 1;
}

int scan_expect(struct reader *r, const char *text)
{
    if (!scan_accept(r, text))
        scan_fail(r, "\"%s\" is expected here", text);
    return !r->failed;
}

static int hex(char c)
{
    const char *digits = "0123456789abcdef", *d = c ? strchr(digits, c) : NULL;

    return d ? (int)(d - digits) : -1;
}

static const char *quoted(struct reader *r)
{
    const char *start = r->at++;
    size_t room = strcspn(r->at, "\n") + 1, n = 0;
    char *out = tn_alloc(r->arena, room);

    while (*r->at != '"') {
        char c = *r->at++;

        if (c == '\\' && (*r->at == '"' || *r->at == '\\'))
            c = *r->at++;
        else if (c == '\\' && *r->at == 'x' && hex(r->at[1]) >= 0 && hex(r->at[2]) >= 0 &&
                 (r->at[1] != '0' || r->at[2] != '0')) {
            c = (char)(16 * hex(r->at[1]) + hex(r->at[2]));
            r->at += 3;
        } else if (c == '\\' || c == '\n' || !c) {
            r->at = start;
            scan_fail(r, c == '\\' ? "a quoted text knows \\\", \\\\ and \\xHH only"
                              : "the quoted text does not end in this line");
            return "";
        }
        out[n++] = c;
    }
    r->at++;
    return out;
}

/* A name, with or without quotes; "" after an error. */
const char *scan_word(struct reader *r, const char *what)
{
    const char *start;

    scan_space(r);
    if (r->failed)
        return "";
    if (*r->at == '"')
        return quoted(r);
    for (start = r->at; text_is_word_char(*r->at);)
        r->at++;
    if (r->at == start)
        scan_fail(r, "%s is expected here", what);
    return tn_text(r->arena, "%.*s", (int)(r->at - start), start);
}

int64_t scan_integer(struct reader *r, int64_t low, int64_t high, const char *what)
{
    char *end;
    long long x;

    scan_space(r);
    if (r->failed)
        return low;
    errno = 0;
    x = strtoll(r->at, &end, 10);
    if (end == r->at || *r->at == '+' || text_is_word_char(*end))
        scan_fail(r, "%s is expected here, a whole number", what);
    else if (errno || x < low || x > high)
        scan_fail(r, "%s must be within %lld and %lld", what, (long long)low, (long long)high);
    else
        r->at = end;
    return r->failed ? low : x;
}

double scan_real(struct reader *r, const char *what)
{
    const char *start, *text;
    char *end;
    double x;

    scan_space(r);
    start = r->at;
    text = scan_word(r, what);
    x = strtod(text, &end);
    if (!r->failed && (*end || !text_is_number(text) || strpbrk(text, "xXpP")))
        scan_fail_at(r, start, "%s is expected here, a number", what);
    return r->failed ? 0 : x;
}

/* --- values, shapes, layouts */

static size_t value_number(struct reader *r)
{
    if (!scan_expect(r, "%"))
        return 0;
    return (size_t)scan_integer(r, 0, (int64_t)r->room - 1, "the number of a value");
}

struct tn_value *scan_use(struct reader *r)
{
    const char *start;
    size_t i;

    scan_space(r);
    start = r->at;
    i = value_number(r);
    if (!r->failed && !r->value[i])
        scan_fail_at(r, start, "%%%zu is not defined above", i);
    return r->failed ? NULL : r->value[i];
}

size_t scan_define(struct reader *r)
{
    const char *start;
    size_t i;

    scan_space(r);
    start = r->at;
    i = value_number(r);
    if (!r->failed && r->value[i])
        scan_fail_at(r, start, "%%%zu is defined a second time", i);
    return i;
}

static uint32_t dtype(struct reader *r)
{
    const char *start = r->at, *name = scan_word(r, "a dtype");

    for (uint32_t d = 1; d < 8 && !r->failed; d++)
        if (!strcmp(name, text_dtype[d]))
            return d;
    scan_fail_at(r, start, "there is no dtype %.40s", name);
    return 0;
}

static tn_layout shard(struct reader *r)
{
    const char *dim = scan_word(r, "the dim that is cut"), *pattern = "";
    int64_t rot = 0;

    if (!scan_accept(r, "rot=") && !scan_accept(r, ")")) {
        pattern = scan_word(r, "the pattern of the cut");
        if (scan_accept(r, ")"))
            return r->failed ? 0 : tn_layout_shard(r->g, dim, pattern, 0);
        scan_expect(r, "rot=");
    } else if (r->at[-1] == ')')
        return tn_layout_shard(r->g, dim, pattern, 0);
    rot = scan_integer(r, INT32_MIN, INT32_MAX, "the rotation");
    return scan_expect(r, ")") ? tn_layout_shard(r->g, dim, pattern, (int32_t)rot) : 0;
}

tn_layout scan_layout(struct reader *r)
{
    static const char *const plain[] = {"?", "R", "P", "Pmax", "F", "V"};

    for (uint32_t i = 0; i < 6; i++)
        if (scan_accept(r, plain[i]))
            return i;
    if (scan_accept(r, "@"))
        return tn_layout_stage(r->g, (uint32_t)scan_integer(r, 0, INT32_MAX, "the stage"));
    if (scan_accept(r, "S") && scan_expect(r, "("))
        return shard(r);
    scan_fail(r, "a layout is expected here: R, P, Pmax, F, V, S(DIM), @STAGE");
    return 0;
}

static void layouts(struct reader *r, struct stated *s)
{
    while (!r->failed && !scan_accept(r, "}")) {
        const char *start = r->at;
        int a = tn_axis_find(scan_word(r, "an axis"));

        if (a < 0)
            scan_fail_at(r, start, "there is no such axis");
        else if (r->g->mesh.size[a] == 1)
            scan_fail_at(r, start, "axis %s has size 1: there are no layouts on it", tn_axis_name[a]);
        if (scan_expect(r, ":"))
            s->layout[a] = scan_layout(r);
        scan_space(r);
    }
}

/* f32[batch=4 seq=32] {tp:S(seq)} */
void scan_type(struct reader *r, struct stated *s)
{
    for (int a = 0; a < TN_AXES; a++)
        s->layout[a] = TN_R;
    scan_space(r);
    s->at = r->at;
    s->dtype = dtype(r);
    for (scan_expect(r, "["); !r->failed && !scan_accept(r, "]"); s->rank++) {
        if (s->rank == TN_MAX_RANK) {
            scan_fail(r, "more than %d dims", TN_MAX_RANK);
            return;
        }
        s->dim[s->rank] = scan_word(r, "a dim");
        scan_expect(r, "=");
        s->size[s->rank] = scan_integer(r, 1, INT64_MAX, "the size");
    }
    if (scan_accept(r, "{"))
        layouts(r, s);
}
