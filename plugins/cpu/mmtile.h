/* mmtile.h - the micro-kernel of matrix products: MM_MR rows by two vectors of columns, held in registers.
 *
 * b is a panel [k][MM_NR], zero beyond the last column. a is either packed, [k][MM_AS] of which the first rows
 * count, or read where it lies, rows of unit stride in k. There is a function for every number of rows up to
 * MM_MR. All of them, at every level with FMA, make an element by the same chain: from 0, one multiply-add for
 * each k in order, then one sum with what was there. So its bits do not depend on where in a tile it is. */
#ifndef TENON_CPU_MMTILE_H
#define TENON_CPU_MMTILE_H
#include "vec.h"

#ifdef __AVX512F__
#define MM_MR 12
#define MM_AS 16
#else
#define MM_MR 6
#define MM_AS 8
#endif
#define MM_NR (2 * TN_W)

struct mm_tile {
    int64_t k;
    const float *a, *b;
    int64_t a_row;                               /* of a that is read where it lies; 0: packed */
    const float *from;                           /* added to the product; NULL: nothing */
    float *to;
    int64_t from_row, to_row;                    /* from and to have whole rows of MM_NR columns */
};

/* Keeps x in a register: else the compiler loads it once for each use. */
#define MM_HOLD(x) __asm__("" : "+v"(x))

/* Row i of three by three (or four by three) rows: few enough pointers for the registers there are. */
static inline __attribute__((always_inline)) void mm_multiply(const int rows, const int packed,
                                                              const struct mm_tile *t, tn_vec acc[MM_MR][2])
{
    const float *a[4], *b = t->b;
    const int64_t row = packed ? 1 : t->a_row;

    for (int i = 0; i < 4; i++)
        a[i] = t->a + (packed ? 0 : 3 * i * row);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = (tn_vec){0};
    for (int64_t k = t->k; k > 0; k--, b += MM_NR) {
        tn_vec b0 = tn_load(b), b1 = tn_load(b + TN_W);

        MM_HOLD(b0);
        MM_HOLD(b1);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            tn_vec x = tn_splat(packed ? a[0][i] : a[i / 3][i % 3 * row]);

            MM_HOLD(x);
            acc[i][0] = tn_fma(x, b0, acc[i][0]);
            acc[i][1] = tn_fma(x, b1, acc[i][1]);
        }
        a[0] += packed ? MM_AS : 1;
        a[1]++, a[2]++, a[3]++;
    }
}

static inline __attribute__((always_inline)) void mm_run(const int rows, const int packed,
                                                         const struct mm_tile *t)
{
    tn_vec acc[MM_MR][2];

#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {             /* they come while the product is made */
        __builtin_prefetch(t->to + i * t->to_row, 1);
        __builtin_prefetch(t->to + i * t->to_row + MM_NR - 1, 1);
    }
    mm_multiply(rows, packed, t, acc);
    if (t->from) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            acc[i][0] += tn_load(t->from + i * t->from_row);
            acc[i][1] += tn_load(t->from + i * t->from_row + TN_W);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        tn_store(t->to + i * t->to_row, acc[i][0]);
        tn_store(t->to + i * t->to_row + TN_W, acc[i][1]);
    }
}

#define MM_TILE(rows)                                                                                        \
    static __attribute__((noinline)) void mm_packed_##rows(const struct mm_tile *t)                          \
    {                                                                                                        \
        mm_run(rows, 1, t);                                                                                  \
    }                                                                                                        \
    static __attribute__((noinline)) void mm_direct_##rows(const struct mm_tile *t)                          \
    {                                                                                                        \
        mm_run(rows, 0, t);                                                                                  \
    }
MM_TILE(1)
MM_TILE(2)
MM_TILE(3)
MM_TILE(4)
MM_TILE(5)
MM_TILE(6)
#if MM_MR > 6
MM_TILE(7)
MM_TILE(8)
MM_TILE(9)
MM_TILE(10)
MM_TILE(11)
MM_TILE(12)
#endif
#undef MM_TILE

static void (*const mm_tiles[2][MM_MR])(const struct mm_tile *t) = { /* [packed][rows - 1] */
    {mm_direct_1, mm_direct_2, mm_direct_3, mm_direct_4, mm_direct_5, mm_direct_6,
#if MM_MR > 6
     mm_direct_7, mm_direct_8, mm_direct_9, mm_direct_10, mm_direct_11, mm_direct_12
#endif
    },
    {mm_packed_1, mm_packed_2, mm_packed_3, mm_packed_4, mm_packed_5, mm_packed_6,
#if MM_MR > 6
     mm_packed_7, mm_packed_8, mm_packed_9, mm_packed_10, mm_packed_11, mm_packed_12
#endif
    },
};
#endif
