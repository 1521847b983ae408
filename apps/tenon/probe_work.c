/* probe_work.c - one operation from start to end, its buffers, numbers of every type: see probe.h.
 *
 * The buffers are memory of the device where the communicator takes that, as in training; else memory of the host, between
 * which and the device training copies. */
#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "probe.h"

const struct probe_op probe_ops[] = {
    {"all_reduce", TN_ALL_REDUCE},
    {"all_gather", TN_ALL_GATHER},
    {"reduce_scatter", TN_REDUCE_SCATTER},
    {"all_to_all", TN_ALL_TO_ALL},
    {"broadcast", TN_BROADCAST},
    {"send", TN_SEND},
    {0},
};

const struct probe_dtype probe_dtypes[] = {
    {"fp32", TN_F32, 4},  {"fp64", TN_F64, 8},  {"bf16", TN_BF16, 2}, {"fp16", TN_F16, 2},
    {"int32", TN_I32, 4}, {"int64", TN_I64, 8}, {"uint8", TN_U8, 1},  {0},
};

/* --- buffers */

static tn_status no_room(uint64_t bytes)
{
    return tn_error(TN_ERR_MEMORY, "no memory for two buffers of %llu bytes; smaller --sizes need less",
                    (unsigned long long)bytes);
}

tn_status probe_buffers(struct probe *p, uint64_t bytes)
{
    const struct tn_device_api *api = p->engine.device_api;
    void *from = NULL, *to = NULL;
    tn_status s;

    p->way = (struct tn_collectives){
        .comm = p->world->comm_api, .device = api, .mesh = p->world->mesh, .seconds = p->world->timeout};
    s = tn_collectives_open(&p->way, p->world, p->engine.device, p->engine.info.host_access);
    if (!s)
        s = api->queue(p->engine.device, &p->queue);
    if (!s && p->way.way == TN_STAGED) {
        p->from = calloc(1, bytes), p->to = calloc(1, bytes);
        return p->from && p->to ? TN_OK : no_room(bytes);
    }
    if (!s)
        s = api->alloc(p->engine.device, bytes, &from);
    if (!s)
        s = api->alloc(p->engine.device, bytes, &to);
    p->from = from, p->to = to;
    for (int i = 0; i < 2 && !s; i++)
        s = api->fill(p->queue, i ? to : from, 0, bytes);
    return s ? s : api->sync(p->queue, p->world->timeout);
}

void probe_buffers_free(struct probe *p)
{
    const struct tn_device_api *api = p->engine.device_api;

    for (int i = 0; i < 2; i++) {
        char *one = i ? p->to : p->from;

        if (one && p->way.way == TN_STAGED)
            free(one);
        else if (one)
            api->free(p->engine.device, one);
    }
    if (p->queue)
        api->queue_close(p->queue);
    tn_collectives_close(&p->way);
}

static tn_status copy(struct probe *p, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    tn_status s;

    if (p->way.way == TN_STAGED) {
        memcpy(to, from, bytes);
        return TN_OK;
    }
    s = p->engine.device_api->copy(p->queue, to, from, bytes, way);
    return s ? s : p->engine.device_api->sync(p->queue, p->world->timeout);
}

tn_status probe_put(struct probe *p, char *at, const void *host, uint64_t bytes)
{
    return copy(p, at, host, bytes, 1);
}

tn_status probe_get(struct probe *p, void *host, const char *at, uint64_t bytes)
{
    return copy(p, host, at, bytes, 2);
}

/* --- one operation */

tn_status probe_do(struct probe *p, struct tn_comm *c, const struct tn_transfer *t, uint32_t n,
                   const char *words)
{
    const struct tn_comm_api *api = p->world->comm_api;
    int streams = p->way.way == TN_BY_STREAM;
    void *stream = streams ? p->engine.device_api->native(p->queue) : NULL;
    struct tn_request *r;
    tn_status s;

    tn_world_waits(p->world, words, ++p->sequence, -1);
    if ((s = api->start(c, t, n, stream, &r)) < 0 && !tn_world_has_failed(p->world))
        return s; /* refused: no other rank did it either */
    if (!s)
        s = streams ? api->wait_on(r, stream) : api->wait(r, p->world->timeout);
    if (!s && streams)
        s = p->engine.device_api->sync(p->queue, p->world->timeout);
    if (!s && streams)
        s = api->check(p->world->comm);
    if (s)
        return tn_world_fail(p->world, NULL, words, p->sequence, -1);
    tn_world_waits(p->world, NULL, 0, -1);
    return TN_OK;
}

tn_status probe_most(struct probe *p, double *x, uint32_t n)
{
    struct tn_transfer t = {
        .op = TN_ALL_REDUCE, .dtype = TN_F64, .reduce = TN_MAX, .from = p->from, .to = p->from, .count = n};
    tn_status s = probe_put(p, p->from, x, n * sizeof *x);

    if (!s)
        s = probe_do(p, p->world->comm, &t, 1, "the times of all ranks");
    return s ? s : probe_get(p, x, p->from, n * sizeof *x);
}

/* --- numbers */

/* To `bits` of mantissa, ties to even; below 2^least the steps stay as they are there. */
static double rounded(double x, int bits, int least, double most)
{
    int e;

    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &e);
    e = (e - bits > least ? e - bits : least);
    x = ldexp(nearbyint(ldexp(x, -e)), e);
    return fabs(x) > most ? copysign(INFINITY, x) : x;
}

double probe_number(uint32_t dtype, double value)
{
    switch (dtype) {
    case TN_F32: return (double)(float)value;
    case TN_BF16: return rounded(value, 8, -133, 0x1.fep127);
    case TN_F16: return rounded(value, 11, -24, 65504);
    case TN_U8: return (uint8_t)(int64_t)value;
    default: return value;
    }
}

static uint16_t half_bits(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    int e;
    double m = frexp(fabs(v), &e);

    if (v == 0 || isinf(v))
        return sign | (v != 0 ? 0x7c00 : 0);
    if (e < -13) /* subnormal: in steps of 2^-24 */
        return sign | (uint16_t)ldexp(fabs(v), 24);
    return sign | (uint16_t)((e + 14) << 10) | ((uint16_t)ldexp(m, 11) & 1023);
}

static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

    return h & 0x8000 ? -v : v;
}

void probe_number_put(uint32_t dtype, void *at, uint64_t i, double value)
{
    double v = probe_number(dtype, value);
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case TN_F32: ((float *)at)[i] = f; break;
    case TN_F64: ((double *)at)[i] = v; break;
    case TN_BF16: ((uint16_t *)at)[i] = (uint16_t)(bits >> 16); break;
    case TN_F16: ((uint16_t *)at)[i] = half_bits(v); break;
    case TN_I32: ((int32_t *)at)[i] = (int32_t)v; break;
    case TN_I64: ((int64_t *)at)[i] = (int64_t)v; break;
    default: ((uint8_t *)at)[i] = (uint8_t)v; break;
    }
}

double probe_number_get(uint32_t dtype, const void *at, uint64_t i)
{
    uint32_t bits;
    float f;

    switch (dtype) {
    case TN_F32: return (double)((const float *)at)[i];
    case TN_F64: return ((const double *)at)[i];
    case TN_BF16:
        bits = (uint32_t)((const uint16_t *)at)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    case TN_F16: return half_value(((const uint16_t *)at)[i]);
    case TN_I32: return ((const int32_t *)at)[i];
    case TN_I64: return (double)((const int64_t *)at)[i];
    default: return ((const uint8_t *)at)[i];
    }
}
