/* text.c - a graph as text: one line for each source and node, in program order.
 *
 *   mesh dp=1 ep=1 pp=1 cp=1 tp=2
 *   param %0 wte f32[vocab=65 embed=64] {tp:S(vocab)} file=[65 64] init=normal(0.02)
 *   input %1 tokens i32[batch=4 seq=32] micro
 *   forward block0:
 *     %2 f32[batch=4 seq=32 embed=64] {tp:P} = embed(%0, %1) role=tok_embed
 *     %3 f32[batch=4 seq=32 embed=64] = all_reduce(%2) role=tok_embed axis=tp from=P to=R
 *   output loss = %3
 *
 * Values are numbered in the order in which they appear, so equal graphs give equal text, and a change of a
 * graph is a change of few lines. Layouts that are R, roles that are empty and defaults are left out. What is
 * not made of letters, digits, and . _ / + - stands in quotes. textread.c reads it back; docs/graph.md
 * explains it. */
#include "graph/internal.h"
#include "graph/op.h"
#include "graph/text.h"
#include <math.h>
#include <stdlib.h>

const char *const text_dtype[8] = {[TN_F32] = "f32", [TN_BF16] = "bf16", [TN_F16] = "f16", [TN_I32] = "i32",
                                   [TN_F64] = "f64", [TN_I64] = "i64",   [TN_U8] = "u8"};
const char *const text_phase[TN_PHASES] = {
    [TN_PROLOGUE] = "prologue", [TN_FORWARD] = "forward", [TN_BACKWARD] = "backward", [TN_AFTER] = "after"};

struct writer {
    struct tn_graph *g;
    FILE *out;
    uint32_t *number;                            /* by id of the value: 1 + its number, 0: not yet seen */
    uint8_t *wanted;                             /* by id: the sources to show; NULL: all */
    uint32_t n_number;
};

int text_is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("._/+-", c));
}

/* Would the reader take it for a number? */
int text_is_number(const char *word)
{
    size_t sign = *word == '-' || *word == '+';

    return (word[sign] >= '0' && word[sign] <= '9') || word[sign] == '.' || !strcmp(word + sign, "inf") ||
           !strcmp(word, "nan");
}

static void put_word(const struct writer *w, const char *text)
{
    const char *c = text;

    while (text_is_word_char(*c))
        c++;
    if (c > text && !*c && !text_is_number(text)) {
        fputs(text, w->out);
        return;
    }
    fputc('"', w->out);
    for (c = text; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(w->out, "\\%c", *c);
        else if ((unsigned char)*c < ' ' || *c == 127)
            fprintf(w->out, "\\x%02x", (unsigned char)*c);
        else
            fputc(*c, w->out);
    fputc('"', w->out);
}

/* The shortest digits that give the same number again; never those of an integer. */
static void put_float(const struct writer *w, double x)
{
    char digits[40] = "nan";

    for (int precision = 1; precision <= 17 && !isnan(x); precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, x);
        if (strtod(digits, NULL) == x)
            break;
    }
    fprintf(w->out, "%s%s", digits, strpbrk(digits, ".einf") ? "" : ".0");
}

static void put_layout(const struct writer *w, tn_layout l)
{
    static const char *const plain[] = {"?", "R", "P", "Pmax", "F", "V"};
    const struct tn_layout_info *i = tn_layout_get(w->g, l);

    if (i->kind < TN_LAYOUT_SHARD) {
        fputs(plain[i->kind], w->out);
        return;
    }
    if (i->kind == TN_LAYOUT_STAGE) {
        fprintf(w->out, "@%d", i->rot);
        return;
    }
    fputs("S(", w->out);
    put_word(w, i->dim);
    if (*i->pattern) {
        fputc(' ', w->out);
        put_word(w, i->pattern);
    }
    fprintf(w->out, i->rot ? " rot=%d)" : ")", i->rot);
}

/* f32[batch=4 seq=32] {tp:S(seq)} */
static void put_type(const struct writer *w, const struct tn_value *v)
{
    int any = 0;

    fprintf(w->out, "%s[", v->dtype < 8 && text_dtype[v->dtype] ? text_dtype[v->dtype] : "?");
    for (uint32_t d = 0; d < v->rank; d++) {
        fputs(d ? " " : "", w->out);
        put_word(w, v->dim[d]);
        fprintf(w->out, "=%lld", (long long)v->size[d]);
    }
    fputc(']', w->out);
    for (int a = 0; a < TN_AXES; a++)
        if (v->layout[a] != TN_R) {
            fprintf(w->out, "%s%s:", any++ ? " " : " {", tn_axis_name[a]);
            put_layout(w, v->layout[a]);
        }
    fputs(any ? "}" : "", w->out);
}

/* What is used but not made by any node of the graph has no number: a fault that the reader reports. */
static void put_number(const struct writer *w, const struct tn_value *v)
{
    if (w->number[v->id])
        fprintf(w->out, "%%%u", w->number[v->id] - 1);
    else
        fputs("%?", w->out);
}

static void put_definition(struct writer *w, const struct tn_value *v)
{
    w->number[v->id] = ++w->n_number;
    put_number(w, v);
}

/* --- sources */

/* "param %3 name", and 1 if the source is to be shown at all. */
static int begin_source(struct writer *w, const char *kind, const struct tn_value *v)
{
    w->number[v->id] = ++w->n_number;
    if (w->wanted && !w->wanted[v->id])
        return 0;
    fprintf(w->out, "%s ", kind);
    put_number(w, v);
    fputc(' ', w->out);
    return 1;
}

static void put_param(struct writer *w, const struct tn_value *v)
{
    const struct tn_param *p = v->param;

    if (!begin_source(w, "param", v))
        return;
    put_word(w, p->name);
    fputc(' ', w->out);
    put_type(w, v);
    fputs(" file=[", w->out);
    for (uint32_t d = 0; d < p->spec.file_rank; d++)
        fprintf(w->out, "%s%lld", d ? " " : "", (long long)p->spec.file_shape[d]);
    fputs(p->spec.init == TN_INIT_ZERO  ? "] init=zero"
          : p->spec.init == TN_INIT_ONE ? "] init=one"
                                        : "] init=normal(",
          w->out);
    if (p->spec.init == TN_INIT_NORMAL) {
        put_float(w, p->spec.std);
        fputc(')', w->out);
    }
    if (p->decay != (p->spec.file_rank >= 2))
        fprintf(w->out, " decay=%u", p->decay);
    if (p->lr_scale != 1) {
        fputs(" lr_scale=", w->out);
        put_float(w, p->lr_scale);
    }
    if (p->twin) {
        fputs(" twin=", w->out);
        put_number(w, p->twin->value);
    }
    fputc('\n', w->out);
}

static void put_input(struct writer *w, const struct tn_value *v)
{
    if (!begin_source(w, "input", v))
        return;
    put_word(w, v->name);
    fputc(' ', w->out);
    put_type(w, v);
    fputs(v->per_micro ? " micro\n" : "\n", w->out);
}

static void put_named(const struct writer *w, const char *name, double x)
{
    fprintf(w->out, " %s=", name);
    put_float(w, x);
}

static void put_rotary(const struct writer *w, const struct tn_rotary *r)
{
    put_named(w, "rotary theta", r->theta);
    if (r->scaling)
        put_named(w, r->scaling == TN_ROTARY_LINEAR ? "linear factor" : "llama3 factor", r->factor);
    if (r->scaling == TN_ROTARY_LLAMA3) {
        put_named(w, "low", r->low);
        put_named(w, "high", r->high);
        put_named(w, "original", r->original);
    }
}

static void put_positions(struct writer *w, const struct tn_value *v)
{
    if (!begin_source(w, "positions", v))
        return;
    put_type(w, v);
    if (v->rotary)
        put_rotary(w, v->rotary);
    fputc('\n', w->out);
}

/* state %9 m of %0 f32[...] */
static void put_state(struct writer *w, const struct tn_value *v)
{
    const struct tn_param *p = v->param;
    uint32_t s = 0;

    while (s + 1 < p->n_state && p->state[s] != v)
        s++;
    if (!begin_source(w, "state", v))
        return;
    put_word(w, p->state_name[s]);
    fputs(" of ", w->out);
    put_number(w, p->value);
    fputc(' ', w->out);
    put_type(w, v);
    fputc('\n', w->out);
}

static void put_cache(struct writer *w, const struct tn_value *v)
{
    if (!begin_source(w, "cache", v))
        return;
    put_word(w, v->name);
    fputc(' ', w->out);
    put_type(w, v);
    fputc('\n', w->out);
}

static void put_sources(struct writer *w)
{
    for (struct tn_value *v = w->g->params; v; v = v->next)
        put_param(w, v);
    for (struct tn_value *v = w->g->inputs; v; v = v->next)
        put_input(w, v);
    for (struct tn_value *v = w->g->positions; v; v = v->next)
        put_positions(w, v);
    for (struct tn_value *v = w->g->states; v; v = v->next)
        put_state(w, v);
    for (struct tn_value *v = w->g->caches; v; v = v->next)
        put_cache(w, v);
}

/* --- nodes */

static void put_attr(const struct writer *w, const struct tn_node *n, const struct tn_attr *a)
{
    fputc(' ', w->out);
    put_word(w, a->key);
    fputc('=', w->out);
    if (text_attr_is_layout(n->op, a->key) && a->type == TN_ATTR_INT)
        put_layout(w, (tn_layout)a->as.i);
    else if (a->type == TN_ATTR_INT)
        fprintf(w->out, "%lld", (long long)a->as.i);
    else if (a->type == TN_ATTR_FLOAT)
        put_float(w, a->as.f);
    else if (a->type == TN_ATTR_TEXT)
        put_word(w, a->as.s);
    else {
        for (uint32_t i = 0; i < a->count; i++) {
            fputc(i ? ' ' : '[', w->out);
            put_word(w, a->as.names[i]);
        }
        fputs(a->count ? "]" : "[]", w->out);
    }
}

int text_attr_is_layout(const struct tn_op *op, const char *key)
{
    return op->flags & TN_OP_COLLECTIVE && (!strcmp(key, "from") || !strcmp(key, "to"));
}

static void put_node(struct writer *w, const struct tn_node *n)
{
    fputs("  ", w->out);
    for (uint32_t o = 0; o < n->n_out; o++) {
        fputs(o ? ", " : "", w->out);
        put_definition(w, n->out[o]);
        fputc(' ', w->out);
        put_type(w, n->out[o]);
    }
    fprintf(w->out, "%s%s(", n->n_out ? " = " : "", n->op->name);
    for (uint32_t i = 0; i < n->n_in; i++) {
        fputs(i ? ", " : "", w->out);
        put_number(w, n->in[i]);
    }
    fputc(')', w->out);
    if (*n->role || tn_node_attr(n, "role")) {
        fputs(" role=", w->out);
        put_word(w, n->role);
    }
    for (uint32_t i = 0; i < n->n_attr; i++)
        put_attr(w, n, &n->attr[i]);
    fputc('\n', w->out);
}

static void put_section(const struct writer *w, const struct tn_node *n)
{
    fprintf(w->out, "%s ", text_phase[n->phase]);
    put_word(w, n->unit);
    fputs(":\n", w->out);
}

/* Nodes of other units than `only` are numbered, not shown. */
static void put_nodes(struct writer *w, const char *only)
{
    const struct tn_node *shown = NULL;

    for (struct tn_node *n = tn_graph_first(w->g); n; n = tn_node_next(n)) {
        if (only && strcmp(n->unit, only)) {
            for (uint32_t o = 0; o < n->n_out; o++)
                w->number[n->out[o]->id] = ++w->n_number;
            continue;
        }
        if (!shown || shown->phase != n->phase || shown->unit != n->unit)
            put_section(w, n);
        put_node(w, n);
        shown = n;
    }
}

/* --- the rest */

static void put_results(const struct writer *w)
{
    const struct tn_graph *g = w->g;

    for (uint32_t i = 0; i < g->n_output; i++) {
        fputs("output ", w->out);
        put_word(w, g->output[i].name);
        fputs(" = ", w->out);
        put_number(w, g->output[i].value);
        fputs(g->output[i].whole ? " whole\n" : "\n", w->out);
    }
    for (struct tn_value *v = g->params; v; v = v->next)
        if (v->param->grad) {
            fputs("grad ", w->out);
            put_number(w, v);
            fputs(" = ", w->out);
            put_number(w, v->param->grad);
            fputc('\n', w->out);
        }
    for (uint32_t i = 0; i < g->n_task; i++)
        fprintf(w->out, "task rank=%u %s micro=%u stage=%u\n", g->task[i].rank, text_phase[g->task[i].phase],
                g->task[i].micro, g->task[i].stage);
}

static void put_head(const struct writer *w)
{
    fputs("mesh", w->out);
    for (int a = 0; a < TN_AXES; a++)
        fprintf(w->out, " %s=%lld", tn_axis_name[a], (long long)w->g->mesh.size[a]);
    fputs(w->g->n_symbol ? "\nsymbols" : "", w->out);
    for (uint32_t i = 0; i < w->g->n_symbol; i++) {
        fputc(' ', w->out);
        put_word(w, w->g->symbol[i]);
    }
    fputc('\n', w->out);
}

static void mark_wanted(struct writer *w, const char *only)
{
    for (struct tn_node *n = tn_graph_first(w->g); n; n = tn_node_next(n))
        for (uint32_t i = 0; i < n->n_in; i++)
            w->wanted[n->in[i]->id] |= !strcmp(n->unit, only);
}

static FILE *open_text(char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);

    if (out)
        return out;
    fputs("tenon: out of memory while writing a graph as text\n", stderr);
    exit(1);
}

/* What was written, in the arena. */
static char *close_text(FILE *out, char **text, struct tn_arena *arena)
{
    char *kept;

    fclose(out);
    kept = tn_text(arena, "%s", *text);
    free(*text);
    return kept;
}

const char *text_of_type(struct tn_graph *g, struct tn_arena *arena, const struct tn_value *v)
{
    char *text;
    size_t bytes;
    struct writer w = {.g = g, .out = open_text(&text, &bytes)};

    put_type(&w, v);
    return close_text(w.out, &text, arena);
}

char *tn_graph_dump(struct tn_graph *g, struct tn_arena *arena, const char *only)
{
    struct writer w = {.g = g};
    char *text;
    size_t bytes;

    tn_graph_settle(g);
    w.out = open_text(&text, &bytes);
    w.number = graph_grow(NULL, (g->n_value + 1) * sizeof *w.number);
    memset(w.number, 0, (g->n_value + 1) * sizeof *w.number);
    if (only) {
        w.wanted = graph_grow(NULL, g->n_value + 1);
        memset(w.wanted, 0, g->n_value + 1);
        mark_wanted(&w, only);
    } else
        put_head(&w);
    put_sources(&w);
    put_nodes(&w, only);
    if (!only)
        put_results(&w);
    free(w.number);
    free(w.wanted);
    return close_text(w.out, &text, arena);
}
