/* memory.c - see memory.h. */
#include "run/memory.h"
#include "base/arena.h"
#include "plan/offset.h"

#define NO_LIMIT 1e9 /* seconds; copies of this rank wait for nobody else */

struct tensor {
    const char *name;
    uint32_t dtype, rank;
    uint64_t bytes;
    int64_t size[TN_MAX_RANK], origin[TN_MAX_RANK], flat_start;
    uint32_t flat;
    char *at;
};

struct tn_memory {
    const struct tn_device_api *api;
    struct tn_device *device;
    struct tn_queue *queue;
    struct tn_arena *arena; /* for bookkeeping */
    struct tensor *tensor;
    void **block; /* everything that was allocated */
    uint32_t n_tensor, n_block;
    uint64_t reserved, room, bytes;
    void *shared; /* the arena of the runs, `room` bytes */
};

tn_status tn_memory_new(const struct tn_device_api *api, struct tn_device *device, struct tn_memory **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_memory *m = tn_alloc(arena, sizeof *m);
    tn_status s;

    *m = (struct tn_memory){.api = api, .device = device, .arena = arena};
    *out = NULL;
    s = api->queue(device, &m->queue);
    if (s) {
        tn_arena_free(arena);
        return s;
    }
    *out = m;
    return TN_OK;
}

void tn_memory_free(struct tn_memory *m)
{
    if (!m)
        return;
    for (uint32_t i = m->n_block; i-- > 0;)
        m->api->free(m->device, m->block[i]);
    m->api->queue_close(m->queue);
    tn_arena_free(m->arena);
}

tn_status tn_memory_block(struct tn_memory *m, uint64_t bytes, void **out)
{
    tn_status s;

    m->block = tn_alloc_grow(m->arena, m->block, m->n_block, sizeof *m->block);
    s = m->api->alloc(m->device, bytes ? bytes : 1, out);
    if (s)
        return s;
    m->block[m->n_block++] = *out;
    m->bytes += bytes;
    return TN_OK;
}

static uint64_t arena_bytes(const struct tn_plan *plan)
{
    return plan->arena_bytes + plan->workspace_bytes;
}

void tn_memory_reserve(struct tn_memory *m, const struct tn_plan *plan)
{
    if (arena_bytes(plan) > m->reserved)
        m->reserved = arena_bytes(plan);
}

tn_status tn_memory_arena(struct tn_memory *m, uint64_t bytes, void **out)
{
    tn_status s = TN_OK;

    if (bytes > m->reserved)
        m->reserved = bytes;
    if (!m->shared || m->reserved > m->room) {
        s = tn_memory_block(m, m->reserved, &m->shared);
        m->room = m->reserved;
    }
    *out = m->shared;
    return s;
}

/* --- by name */

static struct tensor *find(const struct tn_memory *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_tensor; i++)
        if (!strcmp(m->tensor[i].name, name))
            return &m->tensor[i];
    return NULL;
}

static int is_same_part(const struct tensor *t, const struct tn_value *v, const struct tn_local *l)
{
    if (t->dtype != v->dtype || t->rank != v->rank || t->flat != l->flat || t->flat_start != l->flat_start)
        return 0;
    for (uint32_t d = 0; d < v->rank; d++)
        if (t->size[d] != l->size[d] || t->origin[d] != l->origin[d])
            return 0;
    return 1;
}

static void add(struct tn_memory *m, const struct tn_plan *plan, const struct tn_storage *s, char *at)
{
    const struct tn_value *v = s->value;
    const struct tn_local *l = &plan->place[v->id].local;
    struct tensor *t;

    m->tensor = tn_alloc_grow(m->arena, m->tensor, m->n_tensor, sizeof *m->tensor);
    t = &m->tensor[m->n_tensor++];
    *t = (struct tensor){.name = tn_text(m->arena, "%s", v->name),
                         .dtype = v->dtype,
                         .rank = v->rank,
                         .bytes = s->bytes,
                         .flat = l->flat,
                         .flat_start = l->flat_start,
                         .at = at};
    memcpy(t->size, l->size, sizeof t->size);
    memcpy(t->origin, l->origin, sizeof t->origin);
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + TN_OFFSET_ALIGN - 1) / TN_OFFSET_ALIGN * TN_OFFSET_ALIGN;
}

static int is_new(const struct tn_memory *m, const struct tn_storage *s)
{
    return s->where == TN_AT_PERSISTENT && !find(m, s->value->name);
}

/* What the plan has and the memory does not, in one block of zeros. */
static tn_status add_new(struct tn_memory *m, const struct tn_plan *plan)
{
    uint64_t bytes = 0, at = 0;
    uint32_t known = m->n_tensor;
    void *block;
    tn_status s;

    for (uint32_t i = 0; i < plan->n_storage; i++)
        bytes += is_new(m, &plan->storage[i]) ? align(plan->storage[i].bytes) : 0;
    if (!bytes)
        return TN_OK;
    s = tn_memory_block(m, bytes, &block);
    if (!s)
        s = m->api->fill(m->queue, block, 0, bytes);
    if (!s)
        s = m->api->sync(m->queue, NO_LIMIT);
    for (uint32_t i = 0; i < plan->n_storage && !s; i++) {
        if (!is_new(m, &plan->storage[i]))
            continue;
        add(m, plan, &plan->storage[i], (char *)block + at);
        at += align(plan->storage[i].bytes);
    }
    return s && m->n_tensor == known ? s : TN_OK;
}

tn_status tn_memory_bind(struct tn_memory *m, const struct tn_plan *plan, void **ptr)
{
    tn_status s = add_new(m, plan);

    for (uint32_t i = 0; i < plan->n_storage && !s; i++) {
        const struct tn_value *v = plan->storage[i].value;
        const struct tensor *t;
        if (plan->storage[i].where != TN_AT_PERSISTENT)
            continue;
        t = find(m, v->name);
        if (!is_same_part(t, v, &plan->place[v->id].local))
            return tn_error(TN_ERR_SHAPE,
                            "%s: this plan holds another part of it on this rank than the plan that made it",
                            v->name);
        ptr[i] = t->at;
    }
    return s;
}

/* all: nothing less than the whole part is meant. */
static tn_status copy(struct tn_memory *m, const char *name, int all, uint64_t at, void *host, const void *from, uint64_t bytes)
{
    const struct tensor *t = find(m, name);
    tn_status s;

    if (!t)
        return tn_error(TN_ERR, "%s: no plan has a parameter or state of that name", name);
    if (all ? t->bytes != bytes : at > t->bytes || bytes > t->bytes - at)
        return tn_error(TN_ERR_SHAPE, "%s: %llu bytes are here, %llu were given", name,
                        (unsigned long long)t->bytes, (unsigned long long)bytes);
    s = host ? m->api->copy(m->queue, host, t->at + at, bytes, 2) : m->api->copy(m->queue, t->at + at, from, bytes, 1);
    return s ? s : m->api->sync(m->queue, NO_LIMIT);
}

tn_status tn_memory_read(struct tn_memory *m, const char *name, void *host, uint64_t bytes)
{
    return copy(m, name, 1, 0, host, NULL, bytes);
}

tn_status tn_memory_read_part(struct tn_memory *m, const char *name, uint64_t at, void *host, uint64_t bytes)
{
    return copy(m, name, 0, at, host, NULL, bytes);
}

tn_status tn_memory_write(struct tn_memory *m, const char *name, const void *host, uint64_t bytes)
{
    return copy(m, name, 1, 0, NULL, host, bytes);
}

tn_status tn_memory_write_part(struct tn_memory *m, const char *name, uint64_t at, const void *host, uint64_t bytes)
{
    return copy(m, name, 0, at, NULL, host, bytes);
}

void *tn_memory_at(const struct tn_memory *m, const char *name)
{
    const struct tensor *t = find(m, name);

    return t ? t->at : NULL;
}

const char *tn_memory_name(const struct tn_memory *m, uint32_t k, uint64_t *bytes)
{
    if (k >= m->n_tensor)
        return NULL;
    *bytes = m->tensor[k].bytes;
    return m->tensor[k].name;
}

uint64_t tn_memory_bytes(const struct tn_memory *m)
{
    return m->bytes;
}

struct tn_queue *tn_memory_queue(const struct tn_memory *m)
{
    return m->queue;
}

struct tn_device *tn_memory_device(const struct tn_memory *m)
{
    return m->device;
}

const struct tn_device_api *tn_memory_api(const struct tn_memory *m)
{
    return m->api;
}
