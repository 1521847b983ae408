/* numbers.c - see numbers.h. */
#include "hf/numbers.h"

#include <string.h>
#include <tenon/kit_number.h>

#define TILE 32u                                 /* of a matrix that is turned: rows and columns that stay in the cache */

int hf_is_number(uint32_t dtype)
{
    return dtype == TN_F32 || dtype == TN_BF16 || dtype == TN_F16;
}

static float load(uint32_t dtype, const unsigned char *x)
{
    uint16_t h;
    float f;

    if (dtype == TN_F32) {
        memcpy(&f, x, sizeof f);
        return f;
    }
    memcpy(&h, x, sizeof h);
    return (float)(dtype == TN_BF16 ? tn_kit_from_bf16(h) : tn_kit_from_f16(h));
}

void hf_convert(uint32_t from, const void *x, uint32_t to, void *y, uint64_t n)
{
    uint64_t in = tn_kit_width(from), out = tn_kit_width(to);

    if (from == to) {
        memcpy(y, x, n * in);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        float f = load(from, (const unsigned char *)x + i * in);
        uint16_t h;

        if (to == TN_F32) {
            memcpy((unsigned char *)y + i * out, &f, sizeof f);
            continue;
        }
        h = to == TN_BF16 ? tn_kit_to_bf16((double)f) : tn_kit_to_f16((double)f);
        memcpy((unsigned char *)y + i * out, &h, sizeof h);
    }
}

static void turn_tile(const unsigned char *x, uint64_t rows, uint64_t columns, uint64_t width, unsigned char *y, uint64_t r0, uint64_t c0)
{
    uint64_t r1 = r0 + TILE < rows ? r0 + TILE : rows, c1 = c0 + TILE < columns ? c0 + TILE : columns;

    for (uint64_t r = r0; r < r1; r++)
        for (uint64_t c = c0; c < c1; c++)
            memcpy(y + (c * rows + r) * width, x + (r * columns + c) * width, width);
}

void hf_turn(const void *x, uint64_t rows, uint64_t columns, uint64_t width, void *y)
{
    for (uint64_t r = 0; r < rows; r += TILE)
        for (uint64_t c = 0; c < columns; c += TILE)
            turn_tile(x, rows, columns, width, y, r, c);
}
