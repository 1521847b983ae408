/* textread.c - a graph from its text (text.c), checked on the way.
 *
 * A line makes its source or node by the same functions that models and passes use; then what the line states
 * of shapes and layouts is compared with what follows from the operation. So a text that reads is a graph
 * that verifies, and a text changed by hand is caught at the line where it stops fitting. Reading ends at the
 * first error, which names line and column. Lines that are empty or begin with # are passed over. */
#include "graph/textscan.h"
#include <limits.h>
#include <stdlib.h>

#define MOST_ATTR 64u

/* --- nodes */

static void read_section(struct reader *r, uint32_t phase)
{
    const char *unit = scan_word(r, "the unit's name");

    if (!r->failed && phase < r->section)
        scan_fail_at(r, r->line, "%s comes before %s", text_phase[phase], text_phase[r->section]);
    if (!scan_expect(r, ":"))
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
        a->as.i = scan_integer(r, INT64_MIN, INT64_MAX, "the value");
    else
        a->as.f = scan_real(r, "the value");
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
    while (!r->failed && !scan_accept(r, "]")) {
        name = tn_alloc_grow(r->arena, name, a->count, sizeof *name);
        name[a->count++] = scan_word(r, "a name");
    }
    a->as.names = name;
}

static void read_attr(struct reader *r, const struct tn_op *op, struct tn_attr *a)
{
    *a = (struct tn_attr){.key = scan_word(r, "an attribute"), .count = 1};
    scan_expect(r, "=");
    scan_space(r);
    if (text_attr_is_layout(op, a->key)) {
        a->type = TN_ATTR_INT;
        a->as.i = scan_layout(r);
    } else if (scan_accept(r, "[")) {
        a->count = 0;
        read_names(r, a);
    } else if (number_is_next(r))
        read_number(r, a);
    else {
        a->type = TN_ATTR_TEXT;
        a->as.s = scan_word(r, "the value");
    }
}

static uint32_t read_attrs(struct reader *r, const struct tn_op *op, struct tn_attr *attr)
{
    uint32_t n = 0;

    for (; !scan_line_ends(r) && !r->failed; n++) {
        const char *start = r->at;

        if (n == MOST_ATTR) {
            scan_fail(r, "more than %u attributes", n);
            break;
        }
        read_attr(r, op, &attr[n]);
        for (uint32_t i = 0; i < n && !r->failed; i++)
            if (!strcmp(attr[i].key, attr[n].key))
                scan_fail_at(r, start, "attribute %.40s is given twice", attr[n].key);
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
        scan_fail_at(r, r->line, "%s gives %u values here, the line has %u", node->op->name, node->n_out, n);
    for (uint32_t o = 0; o < n && !r->failed; o++) {
        struct tn_value *v = node->out[o];

        if (!same_type(&s[o], v))
            scan_fail_at(r, s[o].at, "%s gives a value of another shape here: %s", node->op->name,
                    text_of_type(r->g, r->arena, v));
        for (int a = 0; a < TN_AXES; a++)
            if (v->layout[a] != s[o].layout[a])
                scan_fail_at(r, s[o].at, "%s gives layout %s on axis %s here, the line says %s",
                             node->op->name, tn_layout_text(r->g, v->layout[a]), tn_axis_name[a],
                             tn_layout_text(r->g, s[o].layout[a]));
        r->value[s[o].number] = v;
    }
}

static uint32_t read_results(struct reader *r, struct stated *s)
{
    uint32_t n = 0;

    do {
        if (n == TN_MAX_OUT) {
            scan_fail(r, "more than %d values of one node", TN_MAX_OUT);
            return n;
        }
        s[n] = (struct stated){.number = scan_define(r)};
        for (uint32_t i = 0; i < n && !r->failed; i++)
            if (s[i].number == s[n].number)
                scan_fail(r, "%%%zu is defined a second time", s[n].number);
        scan_type(r, &s[n++]);
    } while (scan_accept(r, ","));
    scan_expect(r, "=");
    return n;
}

static uint32_t read_operands(struct reader *r, struct tn_value **in)
{
    uint32_t n = 0;

    scan_expect(r, "(");
    if (scan_accept(r, ")"))
        return 0;
    do {
        if (n == TN_MAX_IN) {
            scan_fail(r, "more than %d inputs", TN_MAX_IN);
            return n;
        }
        in[n++] = scan_use(r);
    } while (scan_accept(r, ","));
    scan_expect(r, ")");
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

    scan_space(r);
    start = r->at;
    name = scan_word(r, "an operation");
    op = tn_op_find(name);
    if (!r->failed && !op)
        scan_fail_at(r, start, "there is no operation %.40s", name);
    else if (!r->failed && !r->section)
        scan_fail_at(r, start, "a node stands below a line such as \"forward block0:\"");
    n_in = read_operands(r, in);
    if (scan_accept(r, "role="))
        role = scan_word(r, "the role");
    n_attr = read_attrs(r, op, attr);
    if (r->failed)
        return;
    tn_set_role(r->g, role);
    n = graph_add_node(r->g, name, in, n_in, attr, n_attr);
    if (n)
        graph_verify_node(n);
    if (!scan_graph_failed(r, start))
        compare(r, s, n_out, n);
}

/* --- the rest */

static void read_mesh(struct reader *r)
{
    struct tn_mesh m = tn_mesh_single();
    int64_t world = 1;

    while (!scan_line_ends(r) && !r->failed) {
        const char *start = r->at;
        int a = tn_axis_find(scan_word(r, "an axis"));

        if (a < 0)
            scan_fail_at(r, start, "there is no such axis");
        if (scan_expect(r, "="))
            m.size[a] = scan_integer(r, 1, INT32_MAX, "the size of an axis");
    }
    for (int a = 0; a < TN_AXES; a++)
        if (__builtin_mul_overflow(world, m.size[a], &world) || world > INT32_MAX)
            scan_fail(r, "more than %d ranks", INT32_MAX);
    if (!r->failed)
        r->g = tn_graph_new(&m);
}

static void read_symbols(struct reader *r)
{
    while (!scan_line_ends(r) && !scan_graph_failed(r, r->at))
        tn_graph_symbol(r->g, scan_word(r, "a symbol"));
}

static void read_output(struct reader *r)
{
    const char *name = scan_word(r, "the output's name");
    struct tn_value *v = scan_expect(r, "=") ? scan_use(r) : NULL;

    if (v && tn_graph_find_output(r->g, name))
        scan_fail(r, "output %.40s is given twice", name);
    else if (v)
        tn_graph_output(r->g, name, v);
    if (scan_accept(r, "whole"))
        tn_graph_output_whole(r->g, name);
    for (int a = 0; a < TN_AXES && !r->failed && r->g->n_output; a++)
        if (r->g->output[r->g->n_output - 1].whole && v->layout[a] != TN_R)
            scan_fail_at(r, r->line, "output %.40s is not whole on axis %s", name, tn_axis_name[a]);
    scan_graph_failed(r, r->line);
}

static void read_grad(struct reader *r)
{
    struct tn_value *p = scan_use(r), *v = scan_expect(r, "=") ? scan_use(r) : NULL;

    if (v && p->kind == TN_VALUE_PARAM && p->param->grad)
        scan_fail(r, "the gradient is given twice");
    else if (v)
        tn_set_grad(p, v);
    scan_graph_failed(r, r->line);
}

static void read_task(struct reader *r)
{
    uint32_t rank = scan_expect(r, "rank=") ? (uint32_t)scan_integer(r, 0, INT32_MAX, "the rank") : 0;
    uint32_t phase = scan_accept(r, text_phase[TN_FORWARD]) ? TN_FORWARD : TN_BACKWARD, micro, stage;

    if (phase == TN_BACKWARD)
        scan_expect(r, text_phase[TN_BACKWARD]);
    micro = scan_expect(r, "micro=") ? (uint32_t)scan_integer(r, 0, INT32_MAX, "the micro-batch") : 0;
    stage = scan_expect(r, "stage=") ? (uint32_t)scan_integer(r, 0, INT32_MAX, "the stage") : 0;
    if (!r->failed)
        tn_task(r->g, rank, phase, micro, stage);
    scan_graph_failed(r, r->line);
}

static void read_line(struct reader *r)
{
    static const struct {
        const char *word;
        void (*read)(struct reader *r);
    } kind[] = {
        {"symbols", read_symbols},     {"param", scan_param}, {"input", scan_input},
        {"positions", scan_positions}, {"state", scan_state}, {"output", read_output},
        {"grad", read_grad},           {"task", read_task},   {"cache", scan_cache},
    };

    if (!r->g) {
        if (scan_expect(r, "mesh"))
            read_mesh(r);
        return;
    }
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        if (scan_accept(r, kind[i].word)) {
            kind[i].read(r);
            return;
        }
    for (uint32_t p = 1; p < TN_PHASES; p++)
        if (scan_accept(r, text_phase[p])) {
            read_section(r, p);
            return;
        }
    read_node(r);
}

static void read_lines(struct reader *r)
{
    while (*r->at && !r->failed) {
        r->line = r->at;
        if (!scan_line_ends(r) && *r->at != '#') {
            read_line(r);
            if (!r->failed && !scan_line_ends(r))
                scan_fail(r, "the line should end here");
        }
        r->at += strcspn(r->at, "\n");
        r->number += *r->at == '\n';
        r->at += *r->at == '\n';
    }
    if (!r->g)
        scan_fail_at(r, r->line, "a graph begins with the line \"mesh\"");
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
