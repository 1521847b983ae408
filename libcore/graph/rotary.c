/* rotary.c - the angles of rotary positions (Su et al. 2021), and how a model is stretched to more positions.
 *
 * Pairs are entry i and entry i + D/2 of a head, as in the files that Hugging Face's library writes. Angles are
 * worked out in double and rounded once, as cosines and sines: a position of a million times a frequency near 1
 * leaves an fp32 no digits behind the point. So kernels know no frequency and no scaling: they get the table. */
#include <math.h>
#include "graph/graph.h"

#define FULL_TURN 6.283185307179586

/* How much of the unscaled frequency a pair keeps: 0 for slow ones, 1 for fast ones. */
static double kept(const struct tn_rotary *r, double turn)
{
    double turns = r->original * turn / FULL_TURN;
    double ramp = (turns - r->low) / (r->high - r->low);

    return ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
}

double tn_rotary_turn(const struct tn_rotary *r, int64_t pair, int64_t width)
{
    double turn = pow(r->theta, -2.0 * (double)pair / (double)width), keep;

    if (r->scaling == TN_ROTARY_NONE)
        return turn;
    keep = r->scaling == TN_ROTARY_LLAMA3 ? kept(r, turn) : 0;
    return keep * turn + (1 - keep) * turn / r->factor;
}

/* Local element e of the table, flat or not, is that of a position and of a column. */
void tn_rotary_fill(const struct tn_value *v, const struct tn_local *l, float *out)
{
    const int64_t width = v->size[1], half = width / 2, columns = l->flat ? width : l->size[1];

    for (int64_t c = 0; c < columns; c++) {
        const int64_t at = l->origin[1] + c;
        const double turn = tn_rotary_turn(v->rotary, at % half, width);

        for (int64_t e = c - l->flat_start % columns; e < l->count; e += columns) {
            const int64_t row = (e + l->flat_start) / columns;
            const double angle = turn * (double)(l->index[0] ? l->index[0][row] : l->origin[0] + row);

            if (e >= 0)
                out[e] = (float)(at < half ? cos(angle) : sin(angle));
        }
    }
}
