/* textsource.c - the lines of parameters, inputs, positions, states and caches. */
#include "graph/textscan.h"

static void add_source(struct reader *r, const struct stated *s, struct tn_value *v)
{
    if (scan_graph_failed(r, s->at) || !v)
        return;
    r->value[s->number] = v;
    for (int a = 0; a < TN_AXES; a++)
        if (s->layout[a] != TN_R)
            tn_set_layout(v, tn_axis_name[a], s->layout[a]);
    scan_graph_failed(r, s->at);
}

/* Of a parameter whose name has a *: that of each of its files' tensors, one for each of the first dim. */
static void file_shape(struct reader *r, const char *name, const struct stated *s, struct tn_param_spec *spec)
{
    int64_t count = 1, want = 1;

    for (scan_expect(r, "["); !r->failed && !scan_accept(r, "]");) {
        if (spec->file_rank == TN_MAX_RANK) {
            scan_fail(r, "more than %d dims", TN_MAX_RANK);
            return;
        }
        spec->file_shape[spec->file_rank] = scan_integer(r, 1, INT64_MAX, "the size");
        if (!r->failed && __builtin_mul_overflow(count, spec->file_shape[spec->file_rank++], &count))
            scan_fail(r, "the shape is too large");
    }
    for (uint32_t d = name && strchr(name, '*') ? 1 : 0; d < s->rank; d++)
        if (__builtin_mul_overflow(want, s->size[d], &want))
            scan_fail(r, "the shape is too large");
    if (!r->failed && count != want)
        scan_fail(r, "the file's shape has %lld elements, the parameter %lld", (long long)count,
                  (long long)want);
}

static void init(struct reader *r, struct tn_param_spec *spec)
{
    if (scan_accept(r, "one"))
        spec->init = TN_INIT_ONE;
    else if (scan_accept(r, "normal")) {
        spec->init = TN_INIT_NORMAL;
        scan_expect(r, "(");
        spec->std = scan_real(r, "the standard deviation");
        scan_expect(r, ")");
    } else
        scan_expect(r, "zero");
}

void scan_param(struct reader *r)
{
    struct stated s = {.number = scan_define(r)};
    const char *name = scan_word(r, "the parameter's name");
    struct tn_param_spec spec = {.dim = s.dim, .size = s.size};
    struct tn_value *v;

    scan_type(r, &s);
    spec.rank = s.rank;
    if (scan_expect(r, "file="))
        file_shape(r, name, &s, &spec);
    if (scan_expect(r, "init="))
        init(r, &spec);
    if (!r->failed && s.dtype != TN_F32)
        scan_fail_at(r, s.at, "parameters are f32");
    v = r->failed ? NULL : tn_graph_param(r->g, name, &spec);
    add_source(r, &s, v);
    if (r->failed)
        return;
    if (scan_accept(r, "decay="))
        v->param->decay = (uint32_t)scan_integer(r, 0, 1, "decay");
    if (scan_accept(r, "lr_scale="))
        v->param->lr_scale = scan_real(r, "the scale of the learning rate");
    if (scan_accept(r, "twin=")) {
        struct tn_value *primary = scan_use(r);

        if (!r->failed && (primary->kind != TN_VALUE_PARAM || primary == v || primary->param->twin))
            scan_fail(r, "a copy is that of a parameter that is no copy");
        else if (!r->failed) {
            v->param->twin = primary->param;
            v->param->number = primary->param->number;
        }
    }
}

void scan_input(struct reader *r)
{
    struct stated s = {.number = scan_define(r)};
    const char *name = scan_word(r, "the input's name");
    uint32_t micro;

    scan_type(r, &s);
    micro = (uint32_t)scan_accept(r, "micro");
    if (!r->failed)
        add_source(r, &s, tn_graph_input(r->g, name, s.dtype, s.rank, s.dim, s.size, micro));
}

static double named_real(struct reader *r, const char *name, const char *what)
{
    return scan_expect(r, name) ? scan_real(r, what) : 0;
}

static void rotary(struct reader *r, struct tn_rotary *out)
{
    out->theta = named_real(r, "theta=", "the base of the angles");
    if (scan_accept(r, "linear"))
        out->scaling = TN_ROTARY_LINEAR;
    else if (scan_accept(r, "llama3"))
        out->scaling = TN_ROTARY_LLAMA3;
    if (out->scaling)
        out->factor = named_real(r, "factor=", "the factor");
    if (out->scaling == TN_ROTARY_LLAMA3) {
        out->low = named_real(r, "low=", "the turns of slow pairs");
        out->high = named_real(r, "high=", "the turns of fast pairs");
        out->original = named_real(r, "original=", "the number of positions");
    }
}

void scan_positions(struct reader *r)
{
    struct stated s = {.number = scan_define(r)};
    struct tn_rotary angles = {0};
    struct tn_value *v;
    int turns;

    scan_type(r, &s);
    turns = scan_accept(r, "rotary");
    if (turns)
        rotary(r, &angles);
    if (!r->failed && !turns && (s.rank != 1 || s.dtype != TN_I32))
        scan_fail_at(r, s.at, "positions are i32 and have one dim");
    if (!r->failed && turns && (s.rank != 2 || s.dtype != TN_F32 || s.size[1] % 2))
        scan_fail_at(r, s.at, "rotary positions are f32 and have two dims, the second of an even size");
    if (r->failed)
        return;
    v = turns ? tn_graph_rotary(r->g, s.dim, s.size[0], s.size[1], &angles) : tn_graph_positions_apart(r->g, s.dim[0], s.size[0]);
    for (struct tn_value *w = r->g->positions; w && v && w != v; w = w->next)
        if (tn_graph_same_positions(v, w) && !memcmp(w->layout, s.layout, sizeof s.layout))
            scan_fail_at(r, s.at, "these positions exist already");
    if (!r->failed)
        add_source(r, &s, v);
}

void scan_state(struct reader *r)
{
    struct stated s = {.number = scan_define(r)};
    const char *slot = scan_word(r, "the name of a slot");
    struct tn_value *of = scan_expect(r, "of") ? scan_use(r) : NULL, like = {0};

    if (of && of->kind != TN_VALUE_PARAM)
        scan_fail(r, "a state belongs to a parameter");
    scan_type(r, &s);
    if (r->failed)
        return;
    like.rank = s.rank;
    memcpy(like.dim, s.dim, sizeof like.dim);
    memcpy(like.size, s.size, sizeof like.size);
    for (int a = 0; a < TN_AXES; a++)
        like.layout[a] = TN_R;
    add_source(r, &s, tn_graph_state(r->g, of->param, slot, s.dtype, &like));
}

void scan_cache(struct reader *r)
{
    struct stated s = {.number = scan_define(r)};
    const char *name = scan_word(r, "the cache's name");

    scan_type(r, &s);
    if (!r->failed)
        add_source(r, &s, tn_graph_cache(r->g, name, s.dtype, s.rank, s.dim, s.size));
}
