/* textread.c - a graph from its text (text.c), checked on the way.
 *
 * A line makes its source or node by the same functions that models and passes use; then what the line states
 * of shapes and layouts is compared with what follows from the operation. So a text that reads is a graph
 * that verifies, and a text changed by hand is caught at the line where it stops fitting. Reading ends at the
 * first error, which names line and column. Lines that are empty or begin with # are passed over. */
#include "graph/internal.h"
#include "graph/text.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define MOST_ATTR 64u

struct reader {
    const char *at, *line;                       /* now; beginning of the line */
    uint32_t number;                             /* of the line */
    int failed;
    struct tn_arena *arena;
    struct tn_graph *g;                          /* NULL until the line "mesh" */
    struct tn_value **value;                     /* by number; room for as many as the text can define */
    size_t room;
    uint32_t section;                            /* phase, 0 before the first */
};

__attribute__((format(printf, 3, 4)))
static void fail_at(struct reader *r, const char *at, const char *fmt, ...)
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
#define fail(r, ...) fail_at(r, (r)->at, __VA_ARGS__)

/* The graph's own error, if there is one, as that of this place. */
static int graph_failed(struct reader *r, const char *at)
{
    if (r->g->status)
        fail_at(r, at, "%s", r->g->error ? r->g->error : "out of memory");
    return r->failed;
}

/* --- words */

static void skip_space(struct reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')
        r->at++;
}

static int at_end_of_line(struct reader *r)
{
    skip_space(r);
    return !*r->at || *r->at == '\n';
}

/* Is this the next thing? Then it is passed. */
static int accept(struct reader *r, const char *text)
{
    size_t n = strlen(text);

    skip_space(r);
    if (r->failed || strncmp(r->at, text, n) ||
        (text_is_word_char(text[n - 1]) && text_is_word_char(r->at[n])))
        return 0;
    r->at += n;
    return 1;
}

static int expect(struct reader *r, const char *text)
{
    if (!accept(r, text))
        fail(r, "\"%s\" is expected here", text);
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
            fail(r, c == '\\' ? "a quoted text knows \\\", \\\\ and \\xHH only"
                              : "the quoted text does not end in this line");
            return "";
        }
        out[n++] = c;
    }
    r->at++;
    return out;
}

/* A name, with or without quotes; "" after an error. */
static const char *word(struct reader *r, const char *what)
{
    const char *start;

    skip_space(r);
    if (r->failed)
        return "";
    if (*r->at == '"')
        return quoted(r);
    for (start = r->at; text_is_word_char(*r->at);)
        r->at++;
    if (r->at == start)
        fail(r, "%s is expected here", what);
    return tn_text(r->arena, "%.*s", (int)(r->at - start), start);
}

static int64_t integer(struct reader *r, int64_t low, int64_t high, const char *what)
{
    char *end;
    long long x;

    skip_space(r);
    if (r->failed)
        return low;
    errno = 0;
    x = strtoll(r->at, &end, 10);
    if (end == r->at || *r->at == '+' || text_is_word_char(*end))
        fail(r, "%s is expected here, a whole number", what);
    else if (errno || x < low || x > high)
        fail(r, "%s must be within %lld and %lld", what, (long long)low, (long long)high);
    else
        r->at = end;
    return r->failed ? low : x;
}

static double real(struct reader *r, const char *what)
{
    const char *start, *text;
    char *end;
    double x;

    skip_space(r);
    start = r->at;
    text = word(r, what);
    x = strtod(text, &end);
    if (!r->failed && (*end || !text_is_number(text) || strpbrk(text, "xXpP")))
        fail_at(r, start, "%s is expected here, a number", what);
    return r->failed ? 0 : x;
}

/* --- values, shapes, layouts */

static size_t value_number(struct reader *r)
{
    if (!expect(r, "%"))
        return 0;
    return (size_t)integer(r, 0, (int64_t)r->room - 1, "the number of a value");
}

static struct tn_value *use(struct reader *r)
{
    const char *start;
    size_t i;

    skip_space(r);
    start = r->at;
    i = value_number(r);
    if (!r->failed && !r->value[i])
        fail_at(r, start, "%%%zu is not defined above", i);
    return r->failed ? NULL : r->value[i];
}

static size_t define(struct reader *r)
{
    const char *start;
    size_t i;

    skip_space(r);
    start = r->at;
    i = value_number(r);
    if (!r->failed && r->value[i])
        fail_at(r, start, "%%%zu is defined a second time", i);
    return i;
}

struct stated {                                  /* what a line says of a value */
    size_t number;
    uint32_t dtype, rank;
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
    tn_layout layout[TN_AXES];
    const char *at;
};

static uint32_t dtype(struct reader *r)
{
    const char *start = r->at, *name = word(r, "a dtype");

    for (uint32_t d = 1; d < 8 && !r->failed; d++)
        if (!strcmp(name, text_dtype[d]))
            return d;
    fail_at(r, start, "there is no dtype %.40s", name);
    return 0;
}

static tn_layout shard(struct reader *r)
{
    const char *dim = word(r, "the dim that is cut"), *pattern = "";
    int64_t rot = 0;

    if (!accept(r, "rot=") && !accept(r, ")")) {
        pattern = word(r, "the pattern of the cut");
        if (accept(r, ")"))
            return r->failed ? 0 : tn_layout_shard(r->g, dim, pattern, 0);
        expect(r, "rot=");
    } else if (r->at[-1] == ')')
        return tn_layout_shard(r->g, dim, pattern, 0);
    rot = integer(r, INT32_MIN, INT32_MAX, "the rotation");
    return expect(r, ")") ? tn_layout_shard(r->g, dim, pattern, (int32_t)rot) : 0;
}

static tn_layout layout(struct reader *r)
{
    static const char *const plain[] = {"?", "R", "P", "Pmax", "F", "V"};

    for (uint32_t i = 0; i < 6; i++)
        if (accept(r, plain[i]))
            return i;
    if (accept(r, "@"))
        return tn_layout_stage(r->g, (uint32_t)integer(r, 0, INT32_MAX, "the stage"));
    if (accept(r, "S") && expect(r, "("))
        return shard(r);
    fail(r, "a layout is expected here: R, P, Pmax, F, V, S(DIM), @STAGE");
    return 0;
}

static void layouts(struct reader *r, struct stated *s)
{
    while (!r->failed && !accept(r, "}")) {
        const char *start = r->at;
        int a = tn_axis_find(word(r, "an axis"));

        if (a < 0)
            fail_at(r, start, "there is no such axis");
        else if (r->g->mesh.size[a] == 1)
            fail_at(r, start, "axis %s has size 1: there are no layouts on it", tn_axis_name[a]);
        if (expect(r, ":"))
            s->layout[a] = layout(r);
        skip_space(r);
    }
}

/* f32[batch=4 seq=32] {tp:S(seq)} */
static void type(struct reader *r, struct stated *s)
{
    for (int a = 0; a < TN_AXES; a++)
        s->layout[a] = TN_R;
    skip_space(r);
    s->at = r->at;
    s->dtype = dtype(r);
    for (expect(r, "["); !r->failed && !accept(r, "]"); s->rank++) {
        if (s->rank == TN_MAX_RANK) {
            fail(r, "more than %d dims", TN_MAX_RANK);
            return;
        }
        s->dim[s->rank] = word(r, "a dim");
        expect(r, "=");
        s->size[s->rank] = integer(r, 1, INT64_MAX, "the size");
    }
    if (accept(r, "{"))
        layouts(r, s);
}

/* --- sources */

static void add_source(struct reader *r, const struct stated *s, struct tn_value *v)
{
    if (graph_failed(r, s->at) || !v)
        return;
    r->value[s->number] = v;
    for (int a = 0; a < TN_AXES; a++)
        if (s->layout[a] != TN_R)
            tn_set_layout(v, tn_axis_name[a], s->layout[a]);
    graph_failed(r, s->at);
}

static void file_shape(struct reader *r, const struct stated *s, struct tn_param_spec *spec)
{
    int64_t count = 1, want = 1;

    for (expect(r, "["); !r->failed && !accept(r, "]");) {
        if (spec->file_rank == TN_MAX_RANK) {
            fail(r, "more than %d dims", TN_MAX_RANK);
            return;
        }
        spec->file_shape[spec->file_rank] = integer(r, 1, INT64_MAX, "the size");
        if (!r->failed && __builtin_mul_overflow(count, spec->file_shape[spec->file_rank++], &count))
            fail(r, "the shape is too large");
    }
    for (uint32_t d = 0; d < s->rank; d++)
        if (__builtin_mul_overflow(want, s->size[d], &want))
            fail(r, "the shape is too large");
    if (!r->failed && count != want)
        fail(r, "the file's shape has %lld elements, the parameter %lld", (long long)count, (long long)want);
}

static void init(struct reader *r, struct tn_param_spec *spec)
{
    if (accept(r, "one"))
        spec->init = TN_INIT_ONE;
    else if (accept(r, "normal")) {
        spec->init = TN_INIT_NORMAL;
        expect(r, "(");
        spec->std = real(r, "the standard deviation");
        expect(r, ")");
    } else
        expect(r, "zero");
}

static void read_param(struct reader *r)
{
    struct stated s = {.number = define(r)};
    const char *name = word(r, "the parameter's name");
    struct tn_param_spec spec = {.dim = s.dim, .size = s.size};
    struct tn_value *v;

    type(r, &s);
    spec.rank = s.rank;
    if (expect(r, "file="))
        file_shape(r, &s, &spec);
    if (expect(r, "init="))
        init(r, &spec);
    if (!r->failed && s.dtype != TN_F32)
        fail_at(r, s.at, "parameters are f32");
    v = r->failed ? NULL : tn_graph_param(r->g, name, &spec);
    add_source(r, &s, v);
    if (r->failed)
        return;
    if (accept(r, "decay="))
        v->param->decay = (uint32_t)integer(r, 0, 1, "decay");
    if (accept(r, "lr_scale="))
        v->param->lr_scale = real(r, "the scale of the learning rate");
    if (accept(r, "twin=")) {
        struct tn_value *primary = use(r);

        if (!r->failed && (primary->kind != TN_VALUE_PARAM || primary == v || primary->param->twin))
            fail(r, "a copy is that of a parameter that is no copy");
        else if (!r->failed) {
            v->param->twin = primary->param;
            v->param->number = primary->param->number;
        }
    }
}

static void read_input(struct reader *r)
{
    struct stated s = {.number = define(r)};
    const char *name = word(r, "the input's name");
    uint32_t micro;

    type(r, &s);
    micro = (uint32_t)accept(r, "micro");
    if (!r->failed)
        add_source(r, &s, tn_graph_input(r->g, name, s.dtype, s.rank, s.dim, s.size, micro));
}

static void read_positions(struct reader *r)
{
    struct stated s = {.number = define(r)};
    uint32_t before = r->g->n_value;
    struct tn_value *v;

    type(r, &s);
    if (!r->failed && (s.rank != 1 || s.dtype != TN_I32))
        fail_at(r, s.at, "positions are i32 and have one dim");
    v = r->failed ? NULL : tn_graph_positions(r->g, s.dim[0], s.size[0]);
    if (v && r->g->n_value == before)
        fail_at(r, s.at, "these positions exist already");
    add_source(r, &s, v);
}

static void read_state(struct reader *r)
{
    struct stated s = {.number = define(r)};
    const char *slot = word(r, "the name of a slot");
    struct tn_value *of = expect(r, "of") ? use(r) : NULL, like = {0};

    if (of && of->kind != TN_VALUE_PARAM)
        fail(r, "a state belongs to a parameter");
    type(r, &s);
    if (r->failed)
        return;
    like.rank = s.rank;
    memcpy(like.dim, s.dim, sizeof like.dim);
    memcpy(like.size, s.size, sizeof like.size);
    for (int a = 0; a < TN_AXES; a++)
        like.layout[a] = TN_R;
    add_source(r, &s, tn_graph_state(r->g, of->param, slot, s.dtype, &like));
}

/* --- nodes */

static void read_section(struct reader *r, uint32_t phase)
{
    const char *unit = word(r, "the unit's name");

    if (!r->failed && phase < r->section)
        fail_at(r, r->line, "%s comes before %s", text_phase[phase], text_phase[r->section]);
    if (!expect(r, ":"))
        return;
    r->section = phase;
    tn_at_end(r->g, phase, unit);
    tn_set_role(r->g, "");
}

/* A word that looks like a number is one: of whole numbers those without a point and an exponent. */
static void read_number(struct reader *r, struct tn_attr *a)
{
    const char *c = r->at;

    while (text_is_word_char(*c) && !strchr(".eEin", *c))
        c++;
    a->type = text_is_word_char(*c) ? TN_ATTR_FLOAT : TN_ATTR_INT;
    if (a->type == TN_ATTR_INT)
        a->as.i = integer(r, INT64_MIN, INT64_MAX, "the value");
    else
        a->as.f = real(r, "the value");
}

static int number_is_next(const struct reader *r)
{
    size_t n = 0;

    while (text_is_word_char(r->at[n]))
        n++;
    return text_is_number(tn_text(r->arena, "%.*s", (int)n, r->at));
}

static void read_names(struct reader *r, struct tn_attr *a)
{
    const char **name = NULL;

    a->type = TN_ATTR_NAMES;
    while (!r->failed && !accept(r, "]")) {
        name = tn_alloc_grow(r->arena, name, a->count, sizeof *name);
        name[a->count++] = word(r, "a name");
    }
    a->as.names = name;
}

static void read_attr(struct reader *r, const struct tn_op *op, struct tn_attr *a)
{
    *a = (struct tn_attr){.key = word(r, "an attribute"), .count = 1};
    expect(r, "=");
    skip_space(r);
    if (text_attr_is_layout(op, a->key)) {
        a->type = TN_ATTR_INT;
        a->as.i = layout(r);
    } else if (accept(r, "[")) {
        a->count = 0;
        read_names(r, a);
    } else if (number_is_next(r))
        read_number(r, a);
    else {
        a->type = TN_ATTR_TEXT;
        a->as.s = word(r, "the value");
    }
}

static uint32_t read_attrs(struct reader *r, const struct tn_op *op, struct tn_attr *attr)
{
    uint32_t n = 0;

    for (; !at_end_of_line(r) && !r->failed; n++) {
        const char *start = r->at;

        if (n == MOST_ATTR) {
            fail(r, "more than %u attributes", n);
            break;
        }
        read_attr(r, op, &attr[n]);
        for (uint32_t i = 0; i < n && !r->failed; i++)
            if (!strcmp(attr[i].key, attr[n].key))
                fail_at(r, start, "attribute %.40s is given twice", attr[n].key);
    }
    return n;
}

static int same_type(const struct stated *s, const struct tn_value *v)
{
    int same = s->dtype == v->dtype && s->rank == v->rank;

    for (uint32_t d = 0; same && d < v->rank; d++)
        same = !strcmp(s->dim[d], v->dim[d]) && s->size[d] == v->size[d];
    return same;
}

/* Does the node give what the line says? */
static void compare(struct reader *r, const struct stated *s, uint32_t n, const struct tn_node *node)
{
    if (n != node->n_out)
        fail_at(r, r->line, "%s gives %u values here, the line has %u", node->op->name, node->n_out, n);
    for (uint32_t o = 0; o < n && !r->failed; o++) {
        struct tn_value *v = node->out[o];

        if (!same_type(&s[o], v))
            fail_at(r, s[o].at, "%s gives a value of another shape here: %s", node->op->name,
                    text_of_type(r->g, r->arena, v));
        for (int a = 0; a < TN_AXES; a++)
            if (v->layout[a] != s[o].layout[a])
                fail_at(r, s[o].at, "%s gives layout %s on axis %s here, the line says %s", node->op->name,
                        tn_layout_text(r->g, v->layout[a]), tn_axis_name[a],
                        tn_layout_text(r->g, s[o].layout[a]));
        r->value[s[o].number] = v;
    }
}

static uint32_t read_results(struct reader *r, struct stated *s)
{
    uint32_t n = 0;

    do {
        if (n == TN_MAX_OUT) {
            fail(r, "more than %d values of one node", TN_MAX_OUT);
            return n;
        }
        s[n] = (struct stated){.number = define(r)};
        for (uint32_t i = 0; i < n && !r->failed; i++)
            if (s[i].number == s[n].number)
                fail(r, "%%%zu is defined a second time", s[n].number);
        type(r, &s[n++]);
    } while (accept(r, ","));
    expect(r, "=");
    return n;
}

static uint32_t read_operands(struct reader *r, struct tn_value **in)
{
    uint32_t n = 0;

    expect(r, "(");
    if (accept(r, ")"))
        return 0;
    do {
        if (n == TN_MAX_IN) {
            fail(r, "more than %d inputs", TN_MAX_IN);
            return n;
        }
        in[n++] = use(r);
    } while (accept(r, ","));
    expect(r, ")");
    return n;
}

/* %2 f32[...], %3 f32[...] = op(%0, %1) role=... key=value ... */
static void read_node(struct reader *r)
{
    struct stated s[TN_MAX_OUT];
    struct tn_value *in[TN_MAX_IN];
    struct tn_attr attr[MOST_ATTR];
    uint32_t n_out = *r->at == '%' ? read_results(r, s) : 0, n_in, n_attr;
    const char *start, *name, *role = "";
    const struct tn_op *op;
    struct tn_node *n;

    skip_space(r);
    start = r->at;
    name = word(r, "an operation");
    op = tn_op_find(name);
    if (!r->failed && !op)
        fail_at(r, start, "there is no operation %.40s", name);
    else if (!r->failed && !r->section)
        fail_at(r, start, "a node stands below a line such as \"forward block0:\"");
    n_in = read_operands(r, in);
    if (accept(r, "role="))
        role = word(r, "the role");
    n_attr = read_attrs(r, op, attr);
    if (r->failed)
        return;
    tn_set_role(r->g, role);
    n = graph_add_node(r->g, name, in, n_in, attr, n_attr);
    if (n)
        graph_verify_node(n);
    if (!graph_failed(r, start))
        compare(r, s, n_out, n);
}

/* --- the rest */

static void read_mesh(struct reader *r)
{
    struct tn_mesh m = tn_mesh_single();
    int64_t world = 1;

    while (!at_end_of_line(r) && !r->failed) {
        const char *start = r->at;
        int a = tn_axis_find(word(r, "an axis"));

        if (a < 0)
            fail_at(r, start, "there is no such axis");
        if (expect(r, "="))
            m.size[a] = integer(r, 1, INT32_MAX, "the size of an axis");
    }
    for (int a = 0; a < TN_AXES; a++)
        if (__builtin_mul_overflow(world, m.size[a], &world) || world > INT32_MAX)
            fail(r, "more than %d ranks", INT32_MAX);
    if (!r->failed)
        r->g = tn_graph_new(&m);
}

static void read_symbols(struct reader *r)
{
    while (!at_end_of_line(r) && !graph_failed(r, r->at))
        tn_graph_symbol(r->g, word(r, "a symbol"));
}

static void read_output(struct reader *r)
{
    const char *name = word(r, "the output's name");
    struct tn_value *v = expect(r, "=") ? use(r) : NULL;

    if (v && tn_graph_find_output(r->g, name))
        fail(r, "output %.40s is given twice", name);
    else if (v)
        tn_graph_output(r->g, name, v);
    if (accept(r, "whole"))
        tn_graph_output_whole(r->g, name);
    for (int a = 0; a < TN_AXES && !r->failed && r->g->n_output; a++)
        if (r->g->output[r->g->n_output - 1].whole && v->layout[a] != TN_R)
            fail_at(r, r->line, "output %.40s is not whole on axis %s", name, tn_axis_name[a]);
    graph_failed(r, r->line);
}

static void read_grad(struct reader *r)
{
    struct tn_value *p = use(r), *v = expect(r, "=") ? use(r) : NULL;

    if (v && p->kind == TN_VALUE_PARAM && p->param->grad)
        fail(r, "the gradient is given twice");
    else if (v)
        tn_set_grad(p, v);
    graph_failed(r, r->line);
}

static void read_task(struct reader *r)
{
    uint32_t rank = expect(r, "rank=") ? (uint32_t)integer(r, 0, INT32_MAX, "the rank") : 0;
    uint32_t phase = accept(r, text_phase[TN_FORWARD]) ? TN_FORWARD : TN_BACKWARD, micro, stage;

    if (phase == TN_BACKWARD)
        expect(r, text_phase[TN_BACKWARD]);
    micro = expect(r, "micro=") ? (uint32_t)integer(r, 0, INT32_MAX, "the micro-batch") : 0;
    stage = expect(r, "stage=") ? (uint32_t)integer(r, 0, INT32_MAX, "the stage") : 0;
    if (!r->failed)
        tn_task(r->g, rank, phase, micro, stage);
    graph_failed(r, r->line);
}

static void read_line(struct reader *r)
{
    static const struct {
        const char *word;
        void (*read)(struct reader *r);
    } kind[] = {
        {"symbols", read_symbols},     {"param", read_param}, {"input", read_input},
        {"positions", read_positions}, {"state", read_state}, {"output", read_output},
        {"grad", read_grad},           {"task", read_task},
    };

    if (!r->g) {
        if (expect(r, "mesh"))
            read_mesh(r);
        return;
    }
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        if (accept(r, kind[i].word)) {
            kind[i].read(r);
            return;
        }
    for (uint32_t p = 1; p < TN_PHASES; p++)
        if (accept(r, text_phase[p])) {
            read_section(r, p);
            return;
        }
    read_node(r);
}

static void read_lines(struct reader *r)
{
    while (*r->at && !r->failed) {
        r->line = r->at;
        if (!at_end_of_line(r) && *r->at != '#') {
            read_line(r);
            if (!r->failed && !at_end_of_line(r))
                fail(r, "the line should end here");
        }
        r->at += strcspn(r->at, "\n");
        r->number += *r->at == '\n';
        r->at += *r->at == '\n';
    }
    if (!r->g)
        fail_at(r, r->line, "a graph begins with the line \"mesh\"");
}

struct tn_graph *tn_graph_read(const char *text)
{
    struct reader r = {
        .at = text, .line = text, .number = 1, .arena = tn_arena_new(), .room = strlen(text) + (1u << 16)};

    r.value = graph_grow(NULL, r.room * sizeof *r.value);
    memset(r.value, 0, r.room * sizeof *r.value);
    read_lines(&r);
    free(r.value);
    tn_arena_free(r.arena);
    if (r.failed) {
        tn_graph_free(r.g);
        return NULL;
    }
    r.g->cursor = NULL;
    return r.g;
}
