/* same.c - do two files of tensors say the same?    same TOLERANCE A.safetensors B.safetensors
 *
 * Every tensor of A must be in B, and the reverse, of the same shape; no element may differ by more than
 * TOLERANCE of the largest in its tensor. Prints what differs; exit 1. */
#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "ckpt/safetensors.h"

static double largest(const float *x, uint64_t n)
{
    double most = 0;

    for (uint64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

static int differs(const struct tn_tensor *a, const struct tn_tensor *b, double tolerance)
{
    const float *x = a->data, *y = b ? b->data : NULL;
    double most, worst = 0;

    if (!b || a->dtype != TN_F32 || b->dtype != TN_F32 || a->rank != b->rank ||
        memcmp(a->shape, b->shape, a->rank * sizeof *a->shape))
        return printf("%s: missing, or of another kind\n", a->name) > 0;
    most = largest(x, a->bytes / 4);
    for (uint64_t i = 0; i < a->bytes / 4; i++)
        worst = fabs((double)x[i] - y[i]) <= worst ? worst : fabs((double)x[i] - y[i]);
    if (worst <= tolerance * most)
        return 0;
    return printf("%s: differs by %.3g of its largest\n", a->name, worst / most) > 0;
}

int main(int argc, char **argv)
{
    struct tn_safetensors *a, *b;
    int bad = 0;

    if (argc != 4 || tn_safetensors_open(argv[2], &a) < 0 || tn_safetensors_open(argv[3], &b) < 0) {
        fprintf(stderr, "%s\n", argc == 4 ? tn_error_text() : "same TOLERANCE A B");
        return 2;
    }
    if (!tn_safetensors_count(a) || tn_safetensors_count(a) != tn_safetensors_count(b))
        bad = printf("%d and %d tensors\n", (int)tn_safetensors_count(a), (int)tn_safetensors_count(b));
    for (uint64_t i = 0; i < tn_safetensors_count(a); i++)
        bad |= differs(tn_safetensors_at(a, i), tn_safetensors_find(b, tn_safetensors_at(a, i)->name),
                       atof(argv[1]));
    tn_safetensors_close(a);
    tn_safetensors_close(b);
    return bad != 0;
}
