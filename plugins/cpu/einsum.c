/* einsum.c - contractions: which loops are rows, columns, the sum, a batch; then matrix products.
 *
 * Loops of y that only x has are M, that only w has N, that both have the batch; reduced loops are K. Each
 * class is simplified, so that [B,T] or [heads, head_dim] become one loop where the memory allows it, and one
 * loop of each class is chosen so that the operands are matrices, y row-major; the loops left over are walked
 * around it. The product is ours (mm.c) where the level has it, else BLAS's, which wants x and w without a stride
 * along one of their dims; with a few rows it is a thin one (thin.c). Without M and N the contraction is a sum of
 * products (reduce.c), without K a product (elementwise.c). An epilogue runs over pieces of y that are still in the
 * cache: of our products, before they are in y at all. Others go into the first output that is overwritten anyway;
 * the program reads them there and writes its results. */
#include <limits.h>
#include "cpu.h"

#define THIN_WORTH 32768                         /* multiplications of a piece of a thin product, at least */
#define HOT 262144                               /* floats of y that stay in the second-level cache: 1 MiB */

struct einsum {
    struct tn_cpu_gemm g;
    struct tn_cpu_mm mm;
    struct tn_nest batch, sum;                   /* around the product: of y's loops, and reduced ones */
    int64_t row[TN_MAX_OPERANDS], col[TN_MAX_OPERANDS];
    int64_t block;                               /* rows between epilogues */
    uint32_t a, b;                               /* which operand is the left one: 0 x, 1 w */
    uint32_t n_in, n_out, accumulate, threads;
    uint32_t thin;                               /* a few rows, and w as it lies */
    uint32_t alone;                              /* each thread takes products of the batch for itself */
    uint32_t product;                            /* operand that receives the product */
    struct tn_cpu_program *program;              /* of the epilogue: its input 0 is the product; or NULL */
};
struct run {
    const struct einsum *e;
    void *const *buffer;
    const float *uniform;
    struct tn_cpu_cut cut;
    float *room;
};

/* hot: the product's piece, if it is not in y. */
static void epilogue(const struct run *r, int64_t at, const float *hot, int64_t i0, int64_t i1, int64_t j0,
                     int64_t j1)
{
    const struct einsum *e = r->e;
    struct tn_cpu_view v[TN_MAX_OPERANDS];
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_in + e->n_out; i++) {
        uint32_t op = i == 0 ? e->product : i;

        if (i == 1)
            continue;
        v[n++] = (struct tn_cpu_view){(char *)r->buffer[op] + 4 * (tn_nest_offset(&e->batch, op, at) +
                                                                   i0 * e->row[op] + j0 * e->col[op]),
                                      e->row[op], e->col[op], TN_F32};
    }
    if (hot)
        v[0] = (struct tn_cpu_view){(char *)(uintptr_t)hot, TN_CPU_MM_ROW, 1, TN_F32};
    tn_cpu_program_run(e->program, v, i1 - i0, j1 - j0, r->uniform);
}

/* Rows i0..i1, columns j0..j1 of batch number at: product, sum over the outer reduced loops, epilogue. */
static void rectangle(const struct run *r, int64_t at, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    const struct einsum *e = r->e;
    const float *a = (const float *)r->buffer[e->a] + tn_nest_offset(&e->batch, e->a, at);
    const float *b = (const float *)r->buffer[e->b] + tn_nest_offset(&e->batch, e->b, at);
    float *c = (float *)r->buffer[e->product] + tn_nest_offset(&e->batch, e->product, at);
    int64_t turns = tn_nest_count(&e->sum);

    for (int64_t hi; i0 < i1; i0 = hi) {
        hi = e->program && i1 - i0 >= 2 * e->block ? i0 + e->block : i1;
        for (int64_t k = 0; k < turns; k++)
            (e->thin ? tn_cpu_thin_rect : tn_cpu_gemm_rect)(&e->g, a + tn_nest_offset(&e->sum, e->a, k),
                             b + tn_nest_offset(&e->sum, e->b, k), c, i0, hi, j0, j1,
                             k || (e->accumulate && !e->program) ? 1.0f : 0.0f);
        if (e->program)
            epilogue(r, at, NULL, i0, hi, j0, j1);
    }
}

static void run_piece(void *arg, uint32_t slot, int64_t i)
{
    const struct run *r = arg;
    int64_t lo, hi;

    (void)slot;
    tn_cpu_cut_piece(&r->cut, i % r->cut.n, &lo, &hi);
    if (r->cut.by_rows)
        rectangle(r, i / r->cut.n, lo, hi, 0, r->e->g.n);
    else
        rectangle(r, i / r->cut.n, 0, r->e->g.m, lo, hi);
}

static tn_status launch_blas(void *state, const struct tn_launch *l)
{
    const struct einsum *e = state;
    int64_t batch = tn_nest_count(&e->batch);
    struct run r = {.e = e, .buffer = l->buffer, .uniform = l->uniform};

    tn_cpu_cut(&e->g, batch >= 4 * e->threads ? 1 : e->threads, &r.cut);
    tn_cpu_share(batch * r.cut.n, e->threads, run_piece, &r);
    return TN_OK;
}

/* Pieces of columns; products of a batch, if there are several, one after the other in the same pieces. */
static void cut_thin(const struct einsum *e, struct tn_cpu_cut *cut)
{
    int64_t worth = TN_MIN(8 * e->threads, e->g.m * e->g.n * e->g.k / THIN_WORTH);

    *cut = (struct tn_cpu_cut){.length = e->g.n, .unit = 16, .units = TN_MAX(1, e->g.n / 16)};
    cut->n = TN_MAX(1, TN_MIN(cut->units, worth));
}

static tn_status launch_thin(void *state, const struct tn_launch *l)
{
    const struct einsum *e = state;
    struct run r = {.e = e, .buffer = l->buffer, .uniform = l->uniform};

    cut_thin(e, &r.cut);
    tn_cpu_share(tn_nest_count(&e->batch) * r.cut.n, e->threads, run_piece, &r);
    return TN_OK;
}

#ifdef TN_CPU_MM
/* --- our own products */
struct piece {
    const struct run *r;
    int64_t at;
};

static void finish(void *arg, const float *hot, int64_t i0, int64_t rows, int64_t j0, int64_t cols)
{
    const struct piece *p = arg;

    epilogue(p->r, p->at, hot, i0, i0 + rows, j0, j0 + cols);
}

/* The other operands of the epilogue come while the tile is made. */
static void soon(void *arg, int64_t i0, int64_t rows, int64_t j0)
{
    const struct piece *p = arg;
    const struct einsum *e = p->r->e;

    for (uint32_t op = 2; op < e->n_in + e->n_out; op++) {
        const float *x = (const float *)p->r->buffer[op] + tn_nest_offset(&e->batch, op, p->at);

        if (e->col[op] != 1)
            continue;
        x += i0 * e->row[op] + j0;
        for (int64_t i = 0; i < (e->row[op] ? rows : 1); i++, x += e->row[op]) {
            __builtin_prefetch(x);
            __builtin_prefetch(x + TN_CPU_MM_ROW - 1);
        }
    }
}

static void run_part(void *arg, uint32_t thread, uint32_t threads)
{
    const struct run *r = arg;
    const struct einsum *e = r->e;
    int64_t n = tn_nest_count(&e->batch), lo = 0, hi = n;
    float *shared = r->room, *own = r->room + 2 * e->mm.shared + thread * e->mm.own;
    uint32_t turn = 0;

    if (e->alone) {
        lo = n * thread / threads, hi = n * (thread + 1) / threads;
        shared += thread * (2 * e->mm.shared + e->mm.own), own = shared + 2 * e->mm.shared;
        thread = 0, threads = 1;
    }
    for (int64_t at = lo; at < hi; at++) {
        struct piece piece = {r, at};
        struct tn_cpu_mm_job job = {
            .mm = &e->mm, .a_op = e->a, .b_op = e->b, .sum = e->sum.n ? &e->sum : NULL, .add = e->accumulate};

        job.a = (const float *)r->buffer[e->a] + tn_nest_offset(&e->batch, e->a, at);
        job.b = (const float *)r->buffer[e->b] + tn_nest_offset(&e->batch, e->b, at);
        job.c = (float *)r->buffer[e->product] + tn_nest_offset(&e->batch, e->product, at);
        if (e->program)
            job.finish = finish, job.soon = soon, job.arg = &piece, job.add = 0;
        tn_cpu_mm_part(&job, thread, threads, shared, own, &turn);
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct run r = {.e = state, .buffer = l->buffer, .uniform = l->uniform, .room = l->workspace};

    tn_host->team(run_part, &r);
    return TN_OK;
}

static void plan(struct einsum *e, struct tn_kernel *out)
{
    int64_t batch = tn_nest_count(&e->batch), copies;

    e->alone = batch >= 4 * e->threads;
    tn_cpu_mm_plan(&e->mm, e->alone ? 1 : e->threads);
    copies = e->alone ? e->threads : 1;
    out->launch = launch;
    out->workspace = (uint64_t)(2 * copies * e->mm.shared + e->threads * e->mm.own) * sizeof(float);
}
#endif

static void release(void *state)
{
    struct einsum *e = state;

    free(e->program);
    free(e);
}

/* --- recognising the matrices */
struct classes {
    struct tn_nest m, n, k, batch;
};
struct loop3 {                                   /* one loop: size and strides; size 1 where there is none */
    int64_t size;
    const int64_t *stride;
};

/* An r by c matrix at strides sr, sc: leading dimension and whether it is stored transposed; 0 if it is
 * neither. */
static int as_matrix(int64_t r, int64_t c, int64_t sr, int64_t sc, int64_t *ld, uint32_t *transposed)
{
    *transposed = 0;
    if ((c == 1 || sc == 1) && (r == 1 || sr >= c))
        *ld = r == 1 ? c : sr;
    else if ((r == 1 || sr == 1) && (c == 1 || sc >= r))
        *transposed = 1, *ld = c == 1 ? r : sc;
    else
        return 0;
    return *ld <= INT_MAX && r <= INT_MAX && c <= INT_MAX;
}

static struct loop3 loop_of(const struct tn_nest *n, uint32_t i)
{
    static const int64_t none[TN_MAX_OPERANDS];

    return n->n ? (struct loop3){n->size[i], n->stride[i]} : (struct loop3){1, none};
}

/* Is our product to be taken for the one of g? */
static int is_ours(const struct tn_cpu_gemm *g)
{
#ifdef TN_CPU_MM
    return tn_cpu_mm_pays(g->m, g->n);
#else
    return (void)g, 0;
#endif
}

/* Tries one choice of loops, y's rows from operand a. */
static int try_matrices(struct loop3 m, struct loop3 n, struct loop3 k, uint32_t a, uint32_t b, uint32_t y,
                        struct einsum *e)
{
    uint32_t turned;
    struct tn_cpu_gemm *g = &e->g;

    *g = (struct tn_cpu_gemm){.m = m.size, .n = n.size, .k = k.size};
    if (!as_matrix(m.size, n.size, m.stride[y], n.stride[y], &g->ldc, &turned) || turned)
        return 0;
    e->mm = (struct tn_cpu_mm){m.size,      n.size,      k.size,      m.stride[a], k.stride[a],
                               k.stride[b], n.stride[b], .c_m = g->ldc};
    e->a = a, e->b = b;
    memcpy(e->row, m.stride, sizeof e->row);
    memcpy(e->col, n.stride, sizeof e->col);
    return is_ours(g) || (as_matrix(m.size, k.size, m.stride[a], k.stride[a], &g->lda, &g->at) &&
                          as_matrix(k.size, n.size, k.stride[b], n.stride[b], &g->ldb, &g->bt));
}

static void move_loop(struct tn_nest *from, uint32_t i, struct tn_nest *to)
{
    to->size[to->n] = from->size[i];
    memcpy(to->stride[to->n++], from->stride[i], sizeof *from->stride);
}

/* Everything but the chosen loops goes around the product. */
static void take_rest(struct einsum *e, const struct classes *c, uint32_t im, uint32_t in, uint32_t ik)
{
    struct classes rest = *c;

    e->batch = c->batch, e->sum = c->k, e->sum.n = 0;
    for (uint32_t i = 0; i < rest.m.n; i++)
        if (i != im)
            move_loop(&rest.m, i, &e->batch);
    for (uint32_t i = 0; i < rest.n.n; i++)
        if (i != in)
            move_loop(&rest.n, i, &e->batch);
    for (uint32_t i = 0; i < rest.k.n; i++)
        if (i != ik)
            move_loop(&rest.k, i, &e->sum);
}

/* The choice of loops that makes the largest product. */
static int choose(struct einsum *e, const struct classes *c, uint32_t y)
{
    int64_t best = 0;

    for (uint32_t i = 0; i < TN_MAX(1, c->m.n) * TN_MAX(1, c->n.n) * TN_MAX(1, c->k.n) * 2; i++) {
        uint32_t swap = i & 1, im = i / 2 % TN_MAX(1, c->m.n), rest = i / 2 / TN_MAX(1, c->m.n);
        uint32_t in = rest % TN_MAX(1, c->n.n), ik = rest / TN_MAX(1, c->n.n);
        struct loop3 m = loop_of(&c->m, im), n = loop_of(&c->n, in), k = loop_of(&c->k, ik);
        struct einsum now = *e;
        int64_t size = m.size * n.size * k.size;

        if (size <= best ||
            !(swap ? try_matrices(n, m, k, 1, 0, y, &now) : try_matrices(m, n, k, 0, 1, y, &now)))
            continue;
        best = size, *e = now;
        take_rest(e, c, im, in, ik);
    }
    return best > 0;
}

/* 0 if a loop is reduced that only one operand has. */
static int classify(const struct tn_problem *p, struct classes *c)
{
    struct tn_nest all;
    uint32_t n_out = p->n_loop - p->n_reduced;

    if (!tn_nest_load(&all, p, 0, p->n_loop))
        return 0;
    memset(c, 0, sizeof *c);
    c->m.n_op = c->n.n_op = c->k.n_op = c->batch.n_op = all.n_op;
    for (uint32_t i = 0; i < p->n_loop; i++) {
        int x = all.stride[i][0] != 0, w = all.stride[i][1] != 0;

        if (all.size[i] == 1)
            continue;
        if (i >= n_out && (!x || !w))
            return 0;
        move_loop(&all, i, i >= n_out ? &c->k : x && w ? &c->batch : x ? &c->m : w ? &c->n : &c->batch);
    }
    return 1;
}

/* The program of the epilogue, with the product as input 0; where the product waits for it. */
static int add_epilogue(struct einsum *e, const struct tn_problem *p)
{
    uint32_t i = 0;

    if (!p->program) {
        e->product = p->n_in;
        return p->n_out == 1 && p->n_in == 2;
    }
    while (i < p->n_out && p->accumulate >> i & 1)
        i++;
    if (i == p->n_out || p->program->n_result != p->n_out)
        return 0;
    for (uint32_t o = 0; o < p->n_out; o++)      /* the product's block must be the results' */
        for (uint32_t l = 0; l < p->n_loop; l++)
            if (o != i && p->loop[l].size != 1 && p->loop[l].stride[p->n_in + o] == 0 &&
                l < p->n_loop - p->n_reduced)
                return 0;
    e->product = p->n_in + i;
    e->program = tn_cpu_program_make(p->program, p->n_in - 1, p->accumulate);
    return e->program != NULL;
}

static tn_status without_matrix(const struct tn_problem *p, const struct classes *c, struct tn_kernel *out)
{
    static const struct tn_instr instr[] = {{TN_E_IN, 0, 0, 0}, {TN_E_IN, 1, 0, 0}, {TN_E_MUL, 0, 1, 0}};
    static const uint16_t result[] = {2};
    static const struct tn_program product = {
        .struct_size = sizeof product,
        .n_instr = 3,
        .n_result = 1,
        .instr = instr,
        .result = result,
        .text = "a*b",
    };

    if (p->program || p->n_in != 2)
        return TN_DECLINED;
    return c->k.n ? tn_cpu_reduce_make(p, TN_REDUCE_SUM, out) : tn_cpu_elementwise_make(p, &product, out);
}

tn_status tn_cpu_prepare_einsum(const struct tn_problem *p, struct tn_kernel *out)
{
    struct einsum e = {.n_in = p->n_in, .n_out = p->n_out, .accumulate = p->accumulate & 1};
    struct classes c;
    tn_status s;

    if (p->n_in < 2 || !p->loop || !tn_all_f32(p) || !classify(p, &c))
        return TN_DECLINED;
    tn_nest_simplify(&c.m, 0);
    tn_nest_simplify(&c.n, 1);
    tn_nest_simplify(&c.k, 0);
    tn_nest_simplify(&c.batch, p->n_in);
    if (c.k.n ? !c.m.n && !c.n.n : !c.m.n || !c.n.n || c.batch.n)
        return without_matrix(p, &c, out);
    if (!add_epilogue(&e, p))
        return TN_DECLINED;
    if (!choose(&e, &c, e.product)) {
        free(e.program);
        return TN_DECLINED;
    }
    e.threads = tn_host->threads();
    e.block = TN_ROUND_UP(TN_MAX(TN_MAX(192, HOT / e.g.n), (1 << 20) / (e.g.n * e.g.k)), 48);
    e.thin = e.g.m <= TN_CPU_THIN && e.g.bt && !e.g.at && !is_ours(&e.g);
    out->launch = e.thin ? launch_thin : launch_blas;
#ifdef TN_CPU_MM
    if (is_ours(&e.g))
        plan(&e, out);
#endif
    if ((s = tn_keep(out, &e, sizeof e, p->op)) < 0)
        free(e.program);
    else
        out->release = release;
    return s;
}
