/* mm.c - matrix products of our own, at the levels that have FMA: panels, tiles, epilogue while it is hot.
 *
 * b is copied into panels of MM_NR columns by all threads together, a block of the sum and of the columns at a
 * time (it lies in the last-level cache); then each thread makes its share of c from it, blocks of rows times
 * panels, from rows of a that it has packed for itself (they lie in its second-level cache). Two buffers for
 * b, used in turn, so that one barrier for each block is enough: who packs the next block cannot meet one who
 * still reads the one before the last.
 *
 * A finished piece of c, some rows of one panel, goes to the caller's `finish` while it is in the first-level
 * cache; only for partial sums before the last block does c itself hold the product. The sum of an element is
 * cut in blocks that its length alone decides, so the bits depend neither on the threads nor on how c is cut. */
#include "cpu.h"
#ifdef TN_CPU_MM
#include "mmpack.h"
#include "mmtile.h"

#define MM_K 384                                 /* longest block of the sum */
#define MM_N 1024                                /* widest block of columns */
#define MM_TILES (264 / MM_MR)                   /* of rows in a block */
#define MM_HOT (96 / MM_MR)                      /* tiles that are finished together */
#define MM_DIRECT 256                            /* columns up to which packing a does not pay */

struct state {                                   /* of one thread in one product */
    const struct tn_cpu_mm_job *job;
    const struct tn_cpu_mm *mm;
    uint32_t thread, threads;
    float *rows, *hot;                           /* a's block; what waits for finish */
    const float *a, *b;                          /* of this turn; what this thread packs of b */
    const float *panels;                         /* all of the block */
    int64_t j0, cols, lo, hi;                    /* the block of columns; of it, what this thread packs */
    int64_t k0, k;                               /* the block of the sum */
    int first, last;                             /* of all blocks of the sum */
    const float *ahead;                          /* b of the block after this: runs of floats to be fetched */
    int64_t runs, run, distance;                 /* how many, how long, how far apart */
    int64_t fetched, per_tile;                   /* lines */
};

static int64_t part(int64_t n, int64_t i, int64_t parts)
{
    return n * i / parts;
}

/* --- the plan */
static int64_t tiles_of(const struct tn_cpu_mm *p)
{
    return (p->m + MM_MR - 1) / MM_MR;
}
/* The sum's and the columns' blocks begin at multiples of 8 and MM_NR. */
static int64_t widest_k(const struct tn_cpu_mm *p)
{
    return TN_MIN(p->k, TN_ROUND_UP((p->k + p->k_blocks - 1) / p->k_blocks, 8));
}
static int64_t widest_n(const struct tn_cpu_mm *p)
{
    return TN_ROUND_UP((p->n + p->n_blocks - 1) / p->n_blocks, MM_NR);
}

/* Into how many blocks the rows are cut: so that every thread gets about the same. */
static int64_t cut_rows(const struct tn_cpu_mm *p, uint32_t threads)
{
    int64_t tiles = tiles_of(p), panels = widest_n(p) / MM_NR, least = (tiles + MM_TILES - 1) / MM_TILES,
            best = least, best_cost = INT64_MAX;

    for (int64_t n = least; n <= tiles && n <= least + 2 * threads; n++) {
        int64_t cost = (n * panels + threads - 1) / threads * ((tiles + n - 1) / n);

        if (cost < best_cost)
            best = n, best_cost = cost;
    }
    return best;
}

static int64_t own_floats(int64_t m, int64_t k)
{
    return TN_MIN(MM_TILES, (m + MM_MR - 1) / MM_MR) * MM_AS * TN_MIN(k, MM_K) + MM_HOT * MM_MR * MM_NR;
}
static int64_t shared_floats(int64_t n, int64_t k)
{
    return TN_MIN(MM_N, TN_ROUND_UP(n, MM_NR)) * TN_MIN(k, MM_K);
}

void tn_cpu_mm_plan(struct tn_cpu_mm *p, uint32_t threads)
{
    p->k_blocks = (p->k + MM_K - 1) / MM_K;
    p->n_blocks = (p->n + MM_N - 1) / MM_N;
    p->m_blocks = cut_rows(p, threads);
    p->direct = p->a_k == 1 && p->n <= MM_DIRECT;
    p->shared = shared_floats(p->n, p->k), p->own = own_floats(p->m, p->k);
}

/* --- one block */
static void set_block(struct state *s, int64_t i, int64_t blocks)
{
    const struct tn_cpu_mm_job *job = s->job;
    const struct tn_cpu_mm *p = s->mm;
    int64_t turn = i % blocks / p->k_blocks, n = widest_n(p), k = widest_k(p), panels;

    s->j0 = i / blocks * n, s->cols = TN_MIN(n, p->n - s->j0);
    s->k0 = i % p->k_blocks * k, s->k = TN_MIN(k, p->k - s->k0);
    s->first = i % blocks == 0, s->last = i % blocks == blocks - 1;
    panels = (s->cols + MM_NR - 1) / MM_NR;
    s->lo = part(panels, s->thread, s->threads) * MM_NR;
    s->hi = TN_MIN(s->cols, part(panels, s->thread + 1, s->threads) * MM_NR);
    s->a = job->a + (job->sum ? tn_nest_offset(job->sum, job->a_op, turn) : 0);
    s->b = job->b + (job->sum ? tn_nest_offset(job->sum, job->b_op, turn) : 0) + s->k0 * p->b_k +
           (s->j0 + s->lo) * p->b_n;
}

/* What is packed for the next block is fetched while this one is multiplied: it may come from memory, and
 * packing alone has too little to do while it waits. */
static void look_ahead(struct state *s, const struct state *next)
{
    const struct tn_cpu_mm *p = s->mm;
    int64_t lanes = next->hi - next->lo, panels = (s->cols + MM_NR - 1) / MM_NR;
    int64_t tiles = part(tiles_of(p) * panels, 1, s->threads);

    s->ahead = next->b, s->fetched = 0;
    if (p->b_n == 1)
        s->runs = next->k, s->run = lanes, s->distance = p->b_k;
    else if (p->b_k == 1)
        s->runs = lanes, s->run = next->k, s->distance = p->b_n;
    s->per_tile = s->runs * ((s->run + 15) / 16) / TN_MAX(1, tiles) + 1;
}

static void fetch(struct state *s)
{
    int64_t lines = (s->run + 15) / 16, end = TN_MIN(s->fetched + s->per_tile, s->runs * lines);

    while (s->fetched < end) {
        const float *at = s->ahead + s->fetched / lines * s->distance;

        for (int64_t line = s->fetched % lines; line < lines && s->fetched < end; line++, s->fetched++)
            __builtin_prefetch(at + 16 * line, 0, 2);
    }
}

static void pack_b(const struct state *s, float *to)
{
    const struct tn_cpu_mm *p = s->mm;

    if (s->lo < s->hi)
        mm_pack(s->b, p->b_n, p->b_k, s->hi - s->lo, 0, s->k, to + s->lo * s->k, MM_NR, MM_NR);
}

static void pack_a(const struct state *s, int64_t i0, int64_t i1)
{
    const struct tn_cpu_mm *p = s->mm;

    if (!p->direct)
        mm_pack(s->a + i0 * p->a_m + s->k0 * p->a_k, p->a_m, p->a_k, i1 - i0, p->m - i1, s->k, s->rows, MM_AS, MM_MR);
}

/* A tile that has fewer columns than a panel. */
static void narrow_tile(const struct mm_tile *t, void (*multiply)(const struct mm_tile *t), int64_t rows,
                        int64_t cols)
{
    _Alignas(64) float x[MM_MR * MM_NR];
    struct mm_tile whole = *t;

    whole.from = NULL, whole.to = x, whole.to_row = MM_NR;
    multiply(&whole);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            t->to[i * t->to_row + j] =
                t->from ? x[i * MM_NR + j] + t->from[i * t->from_row + j] : x[i * MM_NR + j];
}

/* Rows i0..i1 of one panel of c; a's rows from i0 on are at `rows`, packed. */
static void column(struct state *s, const float *rows, int64_t i0, int64_t i1, int64_t panel)
{
    const struct tn_cpu_mm *p = s->mm;
    int64_t j0 = s->j0 + panel * MM_NR, cols = TN_MIN(MM_NR, s->cols - panel * MM_NR);
    int finishes = s->last && s->job->finish;
    int64_t start = i0;

    for (; i0 < i1; i0 += MM_MR) {
        int64_t n = TN_MIN(MM_MR, i1 - i0);
        float *c = s->job->c + i0 * p->c_m + j0;
        struct mm_tile t = {.k = s->k, .a = rows, .b = s->panels + panel * MM_NR * s->k, .from_row = p->c_m};

        if (p->direct)
            t.a = s->a + i0 * p->a_m + s->k0, t.a_row = p->a_m;
        t.from = s->first && !s->job->add ? NULL : c;
        t.to = finishes ? s->hot + (i0 - start) * MM_NR : c, t.to_row = finishes ? MM_NR : p->c_m;
        if (finishes)
            s->job->soon(s->job->arg, i0, n, j0);
        if (cols == MM_NR)
            mm_tiles[!p->direct][n - 1](&t);
        else
            narrow_tile(&t, mm_tiles[!p->direct][n - 1], n, cols);
        fetch(s);
        rows += MM_AS * s->k;
    }
    if (finishes)
        s->job->finish(s->job->arg, s->hot, start, i1 - start, j0, cols);
}

/* This thread's share of a block: of blocks of rows times panels, those that are next to each other. */
static void multiply(struct state *s)
{
    const struct tn_cpu_mm *p = s->mm;
    int64_t panels = (s->cols + MM_NR - 1) / MM_NR, n = p->m_blocks * panels, tiles = tiles_of(p);
    int64_t unit = part(n, s->thread, s->threads), end = part(n, s->thread + 1, s->threads);

    for (int64_t next; unit < end; unit = next) {
        int64_t block = unit / panels, t0 = part(tiles, block, p->m_blocks);
        int64_t i0 = t0 * MM_MR, i1 = TN_MIN(p->m, part(tiles, block + 1, p->m_blocks) * MM_MR);

        next = TN_MIN(end, (block + 1) * panels);
        pack_a(s, i0, i1);
        for (int64_t u = unit; u < next; u++)
            for (int64_t i = i0; i < i1; i += MM_HOT * MM_MR)
                column(s, s->rows + (i - i0) / MM_MR * MM_AS * s->k, i, TN_MIN(i1, i + MM_HOT * MM_MR),
                       u % panels);
    }
}

void tn_cpu_mm_part(const struct tn_cpu_mm_job *job, uint32_t thread, uint32_t threads, float *shared, float *own,
                    uint32_t *turn)
{
    const struct tn_cpu_mm *p = job->mm;
    struct state s = {.job = job, .mm = p, .thread = thread, .threads = threads, .hot = own}, next;
    int64_t blocks = (job->sum ? tn_nest_count(job->sum) : 1) * p->k_blocks;
    int64_t all = blocks * ((p->n + widest_n(p) - 1) / widest_n(p));

    s.rows = own + MM_HOT * MM_MR * MM_NR;
    set_block(&s, 0, blocks);
    for (int64_t i = 0; i < all; i++) {
        float *panels = shared + (*turn)++ % 2 * p->shared;

        pack_b(&s, panels);
        if (threads > 1)
            tn_host->barrier();
        next = s, s.panels = panels, s.runs = 0;
        if (i + 1 < all) {
            set_block(&next, i + 1, blocks);
            look_ahead(&s, &next);
        }
        multiply(&s);
        s = next;
    }
}

/* --- a product on its own */
struct run {
    struct tn_cpu_mm_job job;
    float *room;
};

static void run_part(void *arg, uint32_t thread, uint32_t threads)
{
    const struct run *r = arg;
    const struct tn_cpu_mm *p = r->job.mm;
    uint32_t turn = 0;

    tn_cpu_mm_part(&r->job, thread, threads, r->room, r->room + 2 * p->shared + thread * p->own, &turn);
}
#endif

void tn_cpu_product_run(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, float beta,
                        float *room)
{
#ifdef TN_CPU_MM
    struct tn_cpu_mm mm = {.m = g->m, .n = g->n, .k = g->k, .c_m = g->ldc};
    struct run r = {{.mm = &mm, .a = a, .b = b, .c = c, .add = beta != 0}, room};

    if (tn_cpu_mm_pays(g->m, g->n)) {
        mm.a_m = g->at ? 1 : g->lda, mm.a_k = g->at ? g->lda : 1;
        mm.b_n = g->bt ? g->ldb : 1, mm.b_k = g->bt ? 1 : g->ldb;
        tn_cpu_mm_plan(&mm, tn_host->threads());
        tn_host->team(run_part, &r);
        return;
    }
#endif
    (void)room;
    tn_cpu_gemm_run(g, a, b, c, beta);
}

int64_t tn_cpu_product_floats(int64_t m, int64_t n, int64_t k, uint32_t threads)
{
#ifdef TN_CPU_MM
    return 2 * shared_floats(n, k) + threads * own_floats(m, k);
#else
    return (void)m, (void)n, (void)k, (void)threads, 0;
#endif
}
