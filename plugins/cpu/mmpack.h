/* mmpack.h - operands of matrix products copied into panels, from wherever they lie.
 *
 * mm_pack makes panels of `pitch` lanes, panel[k][width], one after the other; what is beyond the last lane is 0.
 * Lanes run along `lane`, the sum along `step` (distances in elements). One of the two is mostly 1. If it is
 * `lane`, whole vectors are moved, a few steps of all panels at a time, so that a row of memory is read through
 * at once. If it is `step`, squares of eight by eight are turned over in registers, while the next eight rows
 * are on their way. beyond: so many more lanes can be read, and what becomes of them does not matter. */
#ifndef TENON_CPU_MMPACK_H
#define TENON_CPU_MMPACK_H
#include <string.h>
#include "vec.h"

/* y[i][j] = x[j][i], eight by eight; the columns of y from 4 on only if there are more than four lanes. */
static inline __attribute__((always_inline)) void mm_turn(const float *x, int64_t row, float *y, int64_t width,
                                                          int rows)
{
    __m256 r[8], t[8];

    for (int i = 0; i < 8; i++)
        r[i] = i < rows ? _mm256_loadu_ps(x + i * row) : _mm256_setzero_ps();
    for (int i = 0; i < 8; i += 2)
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]), t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0x44);
            r[i + 2 * h + 1] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(y + i * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(y + (i + 4) * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* Up to eight lanes of unit stride along the sum. ahead: distance to what is packed next, 0 if nothing is. */
static inline __attribute__((always_inline)) void mm_turn_lanes(const float *x, int64_t lane, const int rows,
                                                                int64_t k, float *y, int64_t width, int64_t ahead)
{
    for (int64_t p = 0; p + 8 <= k; p += 8) {
        if (ahead && p % 16 == 0)
            for (int i = 0; i < 8; i++)
                __builtin_prefetch(x + ahead + i * lane + p);
        mm_turn(x + p, lane, y + p * width, width, rows);
    }
}

static inline void mm_pack_turned(const float *x, int64_t lane, int rows, int64_t k, float *y, int64_t width,
                                  int64_t ahead)
{
    int64_t p = rows == 8 || rows == 6 || rows == 4 ? k / 8 * 8 : 0;

    if (rows == 8)
        mm_turn_lanes(x, lane, 8, k, y, width, ahead);
    else if (rows == 6)
        mm_turn_lanes(x, lane, 6, k, y, width, ahead);
    else if (rows == 4)
        mm_turn_lanes(x, lane, 4, k, y, width, ahead);
    for (; p < k; p++)
        for (int i = 0; i < 8; i++)
            y[p * width + i] = i < rows ? x[i * lane + p] : 0.0f;
}

/* n steps of one panel; lanes: so many lie side by side, perhaps more than the panel has. */
static inline __attribute__((always_inline)) void mm_pack_steps(const float *x, int64_t step, int64_t lanes,
                                                                int64_t n, float *y, const int64_t width)
{
    for (int64_t p = 0; p < n; p++, x += step, y += width) {
        __builtin_prefetch(x + 8 * step);
        if (width > 16)
            __builtin_prefetch(x + 8 * step + 16);
        for (int64_t i = 0; i < width; i += TN_W) {
            if (lanes - i >= TN_W)
                tn_store(y + i, tn_load(x + i));
            else
                for (int64_t j = i; j < i + TN_W; j++)
                    y[j] = j < lanes ? x[j] : 0.0f;
        }
    }
}

static inline __attribute__((always_inline)) void mm_pack(const float *x, int64_t lane, int64_t step,
                                                          int64_t lanes, int64_t beyond, int64_t k,
                                                          float *y, const int64_t width, const int64_t pitch)
{
    if (lane == 1) {
        for (int64_t p = 0; p < k; p += 8)
            for (int64_t i = 0; i < lanes; i += pitch)
                mm_pack_steps(x + p * step + i, step, lanes + beyond - i, k - p < 8 ? k - p : 8,
                              y + (i / pitch * k + p) * width, width);
        return;
    }
    for (int64_t i = 0; i < lanes; i += pitch, x += pitch * lane, y += width * k) {
        int64_t here = lanes - i < pitch ? lanes - i : pitch;

        if (step != 1) {
            for (int64_t p = 0; p < k; p++)
                for (int64_t j = 0; j < width; j++)
                    y[p * width + j] = j < here ? x[j * lane + p * step] : 0.0f;
            continue;
        }
        for (int64_t j = 0; j < width; j += 8) {
            int64_t next = j + 8 < pitch ? 8 : pitch - j;

            mm_pack_turned(x + j * lane, lane, here - j > 8 ? 8 : here > j ? (int)(here - j) : 0, k, y + j, width,
                           i + j + next + 8 <= lanes ? next * lane : 0);
        }
    }
}
#endif
