/* bench.c - builds a problem from its case and runs a kernel on it. See bench.h for what is watched. */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bench.h"

#define MAX_LOOPS (2 * TN_MAX_RANK + 1)
#define MAX_ATTR 12
#define POISON 0xff                              /* as bytes: NaN in every floating dtype, -1 in int32 */

/* Memory between two pages that may not be touched; ends at the second one, but for the alignment. */
struct guarded {
    char *map, *data;
    size_t mapped, bytes;
};

struct operand {
    struct guarded memory;
    size_t skip;                                 /* bytes before the first element */
    int64_t count;
    double *value, *result;                      /* by element: before the run, after it (outputs) */
    char *before;                                /* inputs: the bytes, to find changes */
    int alias;                                   /* of the input of this number, -1: none */
    int unread, positive, nan;
    int64_t limit, first; /* int32: below limit, or counting from first if limit is 0 */
};

/* What prepare may look at: lost after it, so in one piece. */
struct described {
    struct tn_operand operand[TN_MAX_OPERANDS];
    int64_t size[TN_MAX_OPERANDS][TN_MAX_RANK], stride[TN_MAX_OPERANDS][TN_MAX_RANK];
    int64_t whole[TN_MAX_OPERANDS][TN_MAX_RANK], origin[TN_MAX_OPERANDS][TN_MAX_RANK];
    const int64_t *index[TN_MAX_OPERANDS][TN_MAX_RANK];
    const char *dim[TN_MAX_OPERANDS][TN_MAX_RANK];
    int64_t table[26][64];                       /* of dims cut by a table */
    struct tn_loop loop[MAX_LOOPS];
    struct tn_attr attr[MAX_ATTR];
    char attr_text[256];
    struct tn_bench_program program;
};

struct tn_bench {
    struct tn_problem p;
    struct described d;
    const struct tn_bench_case *c;
    struct operand x[TN_MAX_OPERANDS];
    struct {
        int64_t size, whole, origin;
        int by_table;
    } dim[26];
    uint32_t n, micro;
    uint64_t random;
    float uniform[16];
    uint32_t key[4];
    char error[700];
};

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

static struct guarded guarded_new(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + 63) / 64 * 64;
    const size_t pages = (room + page - 1) / page * page;
    struct guarded g = {.mapped = pages + 2 * page, .bytes = room};

    g.map = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map, page, PROT_NONE) ||
        mprotect(g.map + page + pages, page, PROT_NONE))
        tn_bench_stop("no guarded memory of %zu bytes", bytes);
    memset(g.map + page, POISON, pages);
    g.data = g.map + page + pages - room;
    return g;
}

/* Bytes before and behind the data that are no longer as guarded_new left them. */
static int guarded_overrun(const struct guarded *g)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (const char *at = g->map + page; at < g->data; at++)
        if (*at != (char)POISON)
            return 1;
    return 0;
}

static size_t width(uint32_t dtype)
{
    return dtype == TN_BF16 || dtype == TN_F16 ? 2 : 4;
}

static void write_number(uint32_t dtype, void *at, double v)
{
    float f = (float)v;
    uint32_t bits;

    if (dtype == TN_F32)
        memcpy(at, &f, 4);
    else if (dtype == TN_I32)
        memcpy(at, &(int32_t){(int32_t)v}, 4);
    else if (dtype == TN_BF16) {
        memcpy(&bits, &f, 4);
        if (!isnan(f))
            bits += 0x7fff + (bits >> 16 & 1);
        memcpy(at, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
    } else
        memcpy(at, &(_Float16){(_Float16)f}, 2);
}

static double read_number(uint32_t dtype, const void *at)
{
    uint32_t bits = 0;
    uint16_t half;
    int32_t i;
    float f;
    _Float16 h;

    if (dtype == TN_I32)
        return memcpy(&i, at, 4), i;
    if (dtype == TN_F16)
        return memcpy(&h, at, 2), (double)h;
    if (dtype == TN_BF16)
        memcpy(&half, at, 2), bits = (uint32_t)half << 16;
    else
        memcpy(&bits, at, 4);
    return memcpy(&f, &bits, 4), f;
}

/* Where element e of operand o lies. */
static char *place(const struct tn_bench *b, uint32_t o, int64_t e)
{
    const struct tn_operand *t = &b->d.operand[o];
    const struct operand *x = &b->x[b->x[o].alias < 0 ? (int)o : b->x[o].alias];
    int64_t at = 0;

    for (uint32_t d = t->rank; d-- > 0; e /= t->size[d])
        at += e % t->size[d] * t->stride[d];
    return x->memory.data + x->skip + (size_t)at * width(t->dtype);
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
        if (x->nan && e == x->count / 2)
            v = NAN;
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
    x->memory = guarded_new((size_t)lay_out(b, o, order, rank, loose) * width(t->dtype));
    x->skip = loose ? width(t->dtype) : 0;
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

void tn_bench_free(struct tn_bench *b)
{
    for (uint32_t o = 0; o < b->n; o++) {
        munmap(b->x[o].memory.map, b->x[o].memory.mapped);
        free(b->x[o].value), free(b->x[o].result), free(b->x[o].before);
    }
    free(b);
}

/* Loop i and the one inside it are one loop for every operand. */
static int mergeable(const struct tn_bench *b, const struct tn_loop *outer, const struct tn_loop *inner)
{
    for (uint32_t o = 0; o < b->n; o++)
        if (outer->stride[o] != inner->stride[o] * inner->size)
            return 0;
    return 1;
}

int tn_bench_merge(struct tn_bench *b)
{
    uint32_t n = 0, outer = b->p.n_loop - b->p.n_reduced, reduced = 0;
    const uint32_t before = b->p.n_loop;

    for (uint32_t i = 0; i < before; i++) {
        struct tn_loop l = b->d.loop[i];
        const int same = n && (i >= outer) == (reduced > 0);

        if (l.size == 1)
            continue;
        if (same && mergeable(b, &b->d.loop[n - 1], &l)) {
            l.size *= b->d.loop[n - 1].size;
            b->d.loop[n - 1] = l;
            continue;
        }
        b->d.loop[n++] = l;
        reduced += i >= outer;
    }
    b->p.n_loop = n, b->p.n_reduced = reduced;
    return n != before;
}

int64_t tn_bench_count(const struct tn_bench *b, uint32_t operand)
{
    return b->x[operand].count;
}

uint32_t tn_bench_operands(const struct tn_bench *b, uint32_t *n_in)
{
    *n_in = b->p.n_in;
    return b->n;
}

double tn_bench_get(const struct tn_bench *b, uint32_t operand, int64_t element)
{
    return b->x[operand].value[element];
}

/* As the dtype has it. */
void tn_bench_set(struct tn_bench *b, uint32_t operand, int64_t element, double value)
{
    char number[8];

    write_number(b->d.operand[operand].dtype, number, value);
    b->x[operand].value[element] = read_number(b->d.operand[operand].dtype, number);
}

void tn_bench_set_dtype(struct tn_bench *b, uint32_t operand, uint32_t dtype)
{
    b->d.operand[operand].dtype = dtype;
}

void tn_bench_set_micro(struct tn_bench *b, uint32_t micro)
{
    b->micro = micro;
}

void tn_bench_set_uniform(struct tn_bench *b, uint32_t i, double value)
{
    b->uniform[i] = (float)value;
}

void tn_bench_set_key(struct tn_bench *b, uint64_t seed, uint32_t step)
{
    b->key[0] = (uint32_t)seed, b->key[1] = (uint32_t)(seed >> 32), b->key[2] = step, b->key[3] = 0;
}

double tn_bench_result(const struct tn_bench *b, uint32_t output, int64_t element)
{
    return b->x[b->p.n_in + output].result[element];
}

const char *tn_bench_error(const struct tn_bench *b)
{
    return b->error;
}

/* Everything poisoned, then what is there before a run. */
static void reset(struct tn_bench *b)
{
    for (uint32_t o = 0; o < b->n; o++)
        memset(b->x[o].memory.data, POISON, b->x[o].memory.bytes);
    for (uint32_t o = 0; o < b->n; o++) {
        const int output = o >= b->p.n_in;

        for (int64_t e = 0; e < b->x[o].count; e++)
            if (!output || b->p.accumulate >> (o - b->p.n_in) & 1)
                write_number(b->d.operand[o].dtype, place(b, o, e), b->x[o].value[e]);
    }
    for (uint32_t o = 0; o < b->n; o++)
        memcpy(b->x[o].before, b->x[o].memory.data, b->x[o].memory.bytes);
}

/* With the description gone, which prepare only borrowed. */
static tn_status launch(struct tn_bench *b, const struct tn_kernel *k, const struct guarded *work)
{
    void *buffer[TN_MAX_OPERANDS];
    struct tn_launch l = {
        .struct_size = sizeof l, .micro = b->micro, .buffer = buffer, .workspace = work->data};
    struct described *saved = malloc(sizeof *saved);
    const int has_program = !!b->p.program;
    tn_status s;

    for (uint32_t o = 0; o < b->n; o++) {
        const struct operand *x = &b->x[b->x[o].alias < 0 ? (int)o : b->x[o].alias];

        buffer[o] = b->x[o].unread ? NULL : x->memory.data + x->skip;
    }
    l.uniform = has_program ? (const void *)b->uniform : b->key;
    memcpy(saved, &b->d, sizeof b->d);
    memset(&b->d, 0x5a, sizeof b->d);           /* sizes and addresses that no one survives */
    s = k->launch(k->state, &l);
    memcpy(&b->d, saved, sizeof b->d);
    free(saved);
    return s;
}

static tn_status fail(struct tn_bench *b, const char *what, uint32_t operand)
{
    snprintf(b->error, sizeof b->error, "%s %s %u", what, operand < b->p.n_in ? "input" : "output",
             operand < b->p.n_in ? operand : operand - b->p.n_in);
    return TN_ERR;
}

/* Takes the results and looks for what should not have been written. */
static tn_status inspect(struct tn_bench *b)
{
    uint32_t written = 0;

    for (uint32_t o = b->p.n_in; o < b->n; o++) {
        written |= b->x[o].alias < 0 ? 0 : 1u << b->x[o].alias;
        for (int64_t e = 0; e < b->x[o].count; e++)
            b->x[o].result[e] = read_number(b->d.operand[o].dtype, place(b, o, e));
        for (int64_t e = 0; e < b->x[o].count; e++)
            memset(place(b, o, e), POISON, width(b->d.operand[o].dtype));
    }
    for (uint32_t o = 0; o < b->n; o++) {
        const struct operand *x = &b->x[o];

        if (guarded_overrun(&x->memory))
            return fail(b, "wrote in front of", o);
        if (o < b->p.n_in && !(written >> o & 1) && memcmp(x->before, x->memory.data, x->memory.bytes))
            return fail(b, "changed", o);
        for (size_t i = 0; (o >= b->p.n_in || written >> o & 1) && i < x->memory.bytes; i++)
            if (x->memory.data[i] != (char)POISON)
                return fail(b, "wrote between or behind the elements of", o);
    }
    return TN_OK;
}

static tn_status twice(struct tn_bench *b, const struct tn_kernel *k, const struct guarded *work)
{
    double *first[TN_MAX_OPERANDS] = {NULL};
    tn_status s = TN_OK;

    for (int run = 0; run < 2 && s == TN_OK; run++) {
        reset(b);
        memset(work->data, POISON, work->bytes);
        if ((s = launch(b, k, work)) != TN_OK) {
            snprintf(b->error, sizeof b->error, "launch: status %d: %s", (int)s, tn_bench_said());
            s = TN_ERR;
            break;
        }
        s = inspect(b);
        for (uint32_t o = b->p.n_in; o < b->n && s == TN_OK; o++) {
            const size_t bytes = (size_t)b->x[o].count * sizeof(double);

            if (!run)
                first[o] = memcpy(malloc(bytes), b->x[o].result, bytes);
            else if (memcmp(first[o], b->x[o].result, bytes))
                s = fail(b, "a second launch gives other bits in", o);
        }
    }
    if (s == TN_OK && guarded_overrun(work))
        snprintf(b->error, sizeof b->error, "wrote in front of its workspace"), s = TN_ERR;
    for (uint32_t o = 0; o < b->n; o++)
        free(first[o]);
    return s;
}

tn_status tn_bench_run(struct tn_bench *b, const struct tn_kernels *k)
{
    struct tn_kernel kernel = {.struct_size = sizeof kernel};
    struct guarded work;
    tn_status s = k->prepare(&b->p, &kernel);

    if (s == TN_DECLINED)
        return s;
    if (s != TN_OK || !kernel.launch) {
        snprintf(b->error, sizeof b->error, "prepare: status %d: %s", (int)s,
                 s ? tn_bench_said() : "no launch");
        return TN_ERR;
    }
    work = guarded_new(kernel.workspace);
    s = twice(b, &kernel, &work);
    if (kernel.release)
        kernel.release(kernel.state);
    munmap(work.map, work.mapped);
    return s;
}
