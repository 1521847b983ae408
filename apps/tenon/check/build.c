/* build.c - a problem from its case: sizes, operands, attributes, loops. bench.h has the notation. */
#include <math.h>
#include <stdlib.h>
#include "bench_inside.h"

static const char *const names[26] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
                                      "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"};

/* In [0, 1): splitmix64. */
static double draw(struct tn_bench *b)
{
    uint64_t z = b->random += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

/* "v17@5/40", "s8~/20" */
static void read_sizes(struct tn_bench *b)
{
    for (const char *at = b->c->size; *at;) {
        const int k = *at++ - 'a';
        char *end;

        b->dim[k].size = b->dim[k].whole = strtoll(at, &end, 10);
        if (*end == '@')
            b->dim[k].origin = strtoll(end + 1, &end, 10);
        if (*end == '~')
            b->dim[k].by_table = 1, end++;
        if (*end == '/')
            b->dim[k].whole = strtoll(end + 1, &end, 10);
        for (int64_t i = 0; b->dim[k].by_table && i < b->dim[k].size;
             i++) /* some at the front, the rest at the end */
            b->d.table[k][i] = i < b->dim[k].size / 2 ? i + 1 : b->dim[k].whole - b->dim[k].size + i;
        at = end + strspn(end, " ");
    }
}

/* Strides for the dims in the order given, and the number of elements that memory needs. */
static int64_t lay_out(struct tn_bench *b, uint32_t o, const char *order, size_t rank, int loose)
{
    int64_t n = 1;

    for (size_t i = rank; i-- > 0;) {
        uint32_t d = 0;

        while (d < rank && b->d.dim[o][d][0] != order[i])
            d++;
        if (d == rank)
            tn_bench_stop("%s: '%c' in the order of operand %u is none of its dims", b->c->op, order[i], o);
        b->d.stride[o][d] = n;
        n *= b->d.size[o][d] + (loose ? i + 1 == rank ? 3 : 1 : 0);
    }
    return n + loose;
}

static void read_modifiers(struct tn_bench *b, uint32_t o, const char *at, const char *end,
                           const char **order, int *loose)
{
    struct operand *x = &b->x[o];

    while (at < end) {
        const char m = *at++;

        if (m == '/')
            *order = at, at += strspn(at, "abcdefghijklmnopqrstuvwxyz");
        else if (m == '+')
            *loose = 1;
        else if (m == '>')
            x->positive = 1;
        else if (m == '?')
            x->unread = 1;
        else if (m == '!')
            x->nan = 1;
        else if (m == '^')
            x->infinite = 1;
        else if (m == '%')
            x->extreme = 1;
        else if (m == '=')
            x->alias = *at++ - 'a';
        else if (m == ':' && (*at == 'h' || *at == 'f'))
            b->d.operand[o].dtype = *at++ == 'h' ? TN_BF16 : TN_F16;
        else if (m == ':' && (*at == 'i' || *at == 'p')) {
            int64_t *to = *at == 'i' ? &x->limit : &x->first;

            b->d.operand[o].dtype = TN_I32;
            *to = strtoll(at + 1, (char **)&at, 10);
        } else
            tn_bench_stop("%s: operand %u: modifier '%c'", b->c->op, o, m);
    }
}

/* One of three is of these. */
static double extreme(struct tn_bench *b, double usual)
{
    static const double list[] = {0.0,  -0.0, 1e-45, -1e-40,        0x1p-126,      INFINITY, -INFINITY, NAN,
                                  1e30, 65504, -1e-8, 3.4028235e38, -3.4028235e38, 1,        -1};
    const double which = 3 * draw(b);

    return which < 1 ? list[(size_t)(which * (double)(sizeof list / sizeof *list))] : usual;
}

static void fill(struct tn_bench *b, uint32_t o)
{
    struct operand *x = &b->x[o];
    const uint32_t dtype = b->d.operand[o].dtype;

    for (int64_t e = 0; e < x->count; e++) {
        double v = 2 * draw(b) - 1;

        if (x->positive)
            v = 0.5 + draw(b);
        if (dtype == TN_I32)
            v = x->limit ? floor(draw(b) * (double)(x->limit + 1)) - 1 : (double)(x->first + e);
        if (x->extreme)
            v = extreme(b, v);
        if ((x->nan || x->infinite) && e == x->count / 2)
            v = x->nan ? NAN : INFINITY;
        tn_bench_set(b, o, e, v);
    }
}

static void read_operand(struct tn_bench *b, const char *word, size_t length)
{
    const uint32_t o = b->n++;
    const size_t rank = *word == '-' ? 0 : strspn(word, "abcdefghijklmnopqrstuvwxyz");
    struct operand *x = &b->x[o];
    struct tn_operand *t = &b->d.operand[o];
    const char *order = word;
    int loose = 0;

    *t = (struct tn_operand){.dtype = TN_F32,
                             .rank = (uint32_t)rank,
                             .size = b->d.size[o],
                             .stride = b->d.stride[o],
                             .whole = b->d.whole[o],
                             .origin = b->d.origin[o],
                             .index = b->d.index[o],
                             .dim = b->d.dim[o]};
    x->alias = -1, x->count = 1;
    for (size_t d = 0; d < rank; d++) {
        const int k = word[d] - 'a';

        b->d.dim[o][d] = names[k];
        b->d.size[o][d] = b->dim[k].size, b->d.whole[o][d] = b->dim[k].whole;
        b->d.origin[o][d] = b->dim[k].origin, b->d.index[o][d] = b->dim[k].by_table ? b->d.table[k] : NULL;
        x->count *= b->dim[k].size;
    }
    read_modifiers(b, o, word + (rank ? rank : 1), word + length, &order, &loose);
    x->memory = tn_guarded_new((size_t)lay_out(b, o, order, rank, loose) * tn_number_width(t->dtype));
    x->skip = loose ? tn_number_width(t->dtype) : 0;
    x->value = calloc((size_t)x->count, sizeof *x->value),
    x->result = calloc((size_t)x->count, sizeof *x->result);
    x->before = malloc(x->memory.bytes);
    fill(b, o);
}

static uint32_t read_operands(struct tn_bench *b, const char *words)
{
    const uint32_t first = b->n;

    while (words && *words) {
        size_t length = strcspn(words, " ");

        read_operand(b, words, length);
        words += length;
        words += strspn(words, " ");
    }
    return b->n - first;
}

/* "eps=1e-5 causal=1 to=bf16" */
static void read_attrs(struct tn_bench *b)
{
    if (!b->c->attr)
        return;
    snprintf(b->d.attr_text, sizeof b->d.attr_text, "%s", b->c->attr);
    for (char *save, *word = strtok_r(b->d.attr_text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        struct tn_attr *a = &b->d.attr[b->p.n_attr++];
        char *value = strchr(word, '=');

        *value++ = 0;
        *a = (struct tn_attr){.key = word, .type = TN_ATTR_TEXT, .count = 1, .as.s = value};
        if (strchr("-.0123456789", *value)) {
            a->type = strpbrk(value, ".e") ? TN_ATTR_FLOAT : TN_ATTR_INT;
            if (a->type == TN_ATTR_FLOAT)
                a->as.f = atof(value);
            else
                a->as.i = atoll(value);
        }
    }
}

/* A loop for each dim of o that has none yet. */
static void add_loops(struct tn_bench *b, uint32_t o)
{
    for (uint32_t d = 0; d < b->d.operand[o].rank; d++) {
        const char *name = b->d.dim[o][d];
        struct tn_loop l = {.size = b->d.size[o][d]};
        int known = 0;

        for (uint32_t i = 0; i < b->n; i++)
            for (uint32_t k = 0; k < b->d.operand[i].rank; k++)
                if (b->d.dim[i][k] == name)
                    l.stride[i] = b->d.stride[i][k];
        for (uint32_t i = 0; i < b->p.n_loop; i++)
            known |= !memcmp(&b->d.loop[i], &l, sizeof l);
        if (!known)
            b->d.loop[b->p.n_loop++] = l;
    }
}

static int is_nest(const char *op)
{
    static const char *const nests[] = {"einsum", "sum", "sumsq", "rowmax", "expand",
                                        "expr",   "copy", "accum", "cast", "dropout"};

    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++)
        if (!strcmp(op, nests[i]))
            return 1;
    return 0;
}

struct tn_bench *tn_bench_new(const struct tn_bench_case *c, uint64_t seed)
{
    struct tn_bench *b = calloc(1, sizeof *b);

    b->c = c, b->random = seed;
    read_sizes(b);
    b->p = (struct tn_problem){.struct_size = sizeof b->p, .op = c->op, .accumulate = c->accumulate};
    b->p.n_in = read_operands(b, c->in);
    b->p.n_out = read_operands(b, c->out);
    b->p.in = b->d.operand, b->p.out = b->d.operand + b->p.n_in;
    read_attrs(b);
    b->p.attr = b->d.attr;
    if (is_nest(c->op)) {
        add_loops(b, b->p.n_in);
        b->p.n_reduced = b->p.n_loop;
        for (uint32_t i = 0; i < b->p.n_in; i++)
            add_loops(b, i);
        b->p.n_reduced = b->p.n_loop - b->p.n_reduced;
        b->p.loop = b->d.loop;
    }
    if (c->f) {
        tn_bench_parse(c->f, &b->d.program);
        b->p.program = &b->d.program.p;
    }
    for (uint32_t i = 0; i < 16; i++)
        b->uniform[i] = (float)draw(b);
    tn_bench_set_key(b, 1234567890123u, 7);
    return b;
}
