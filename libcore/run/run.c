/* run.c - see run.h. */
#include "base/status.h"
#include "run/run.h"
#include <stdlib.h>
#include "base/arena.h"
#include "run/state.h"

/* --- binding */

static void *address(const struct tn_run *run, const struct tn_ref *ref)
{
    return ref->storage == TN_NOWHERE ? NULL : (char *)run->at[ref->storage] + ref->offset;
}

static void bind_call(struct tn_run *run, struct segment *seg, uint32_t row, int32_t kernel)
{
    const struct tn_plan *plan = run->plan;
    const struct tn_row *r = &plan->row[row];
    const struct tn_kernel *k = &plan->kernel[kernel].kernel;
    void **buffer = tn_alloc_array(run->arena, r->n_in + r->n_out + 1u, sizeof *buffer);
    struct call *c = &seg->call[seg->n_call++];

    for (uint32_t i = 0; i < r->n_in + r->n_out; i++) {
        const struct tn_ref *ref = &r->ref[i];
        buffer[i] = address(run, ref);
        const struct tn_storage *x = ref->storage == TN_NOWHERE ? NULL : &plan->storage[ref->storage];
        if (!x || !(x->micro_stride | x->slot_stride))
            continue;
        seg->move = tn_alloc_grow(run->arena, seg->move, seg->n_move, sizeof *seg->move);
        seg->move[seg->n_move++] =
            (struct move){&buffer[i], buffer[i], x->micro_stride ? x->micro_stride : x->slot_stride, !x->micro_stride};
    }
    *c = (struct call){.launch = k->launch,
                       .state = k->state,
                       .row = row,
                       .by_slot = r->way != TN_ROW_COMPUTE,
                       .once = r->way != TN_ROW_COMPUTE && r->once,
                       .l = {.struct_size = sizeof c->l, .buffer = buffer, .queue = run->queue}};
}

static void bind_segment(struct tn_run *run, uint32_t part, uint32_t way, char *workspace)
{
    const struct tn_plan *plan = run->plan;
    struct segment *seg = &run->segment[4 * part + way];
    uint32_t first = plan->part[part].first, end = plan->part[part].end, later = way & 1, last = way >> 1;

    seg->call = tn_alloc_array(run->arena, end - first, sizeof *seg->call);
    for (uint32_t r = first; r < end; r++) {
        struct call *c = &seg->call[seg->n_call];
        if (plan->row[r].kernel[later] < 0 || (plan->row[r].once && !last))
            continue;
        bind_call(run, seg, r, plan->row[r].kernel[later]);
        c->l.workspace = plan->row[r].work == TN_NOWHERE ? workspace : run->at[plan->row[r].work];
        c->l.uniform = plan->row[r].uniform == TN_NOWHERE ? NULL : run->uniform + plan->row[r].uniform;
    }
}

static void bind_tasks(struct tn_run *run)
{
    const struct tn_plan *plan = run->plan;

    run->go = tn_alloc_array(run->arena, plan->n_task + 1u, sizeof *run->go);
    for (uint32_t t = 0; t < plan->n_task; t++)
        run->go[t] = (struct go){&run->segment[4 * plan->task[t].part + plan->task[t].later + 2 * plan->task[t].last],
                                 plan->task[t].micro, plan->task[t].slot};
    run->n_go = plan->n_task;
    run->n_compute = plan->n_task - plan->n_update_task;
}

/* Positions are constants: global indices of what this rank holds, or angles of such. */
static tn_status fill_positions(struct tn_run *run, const struct tn_value *v, void *to)
{
    const struct tn_local *l = &run->plan->place[v->id].local;
    union {
        int32_t number;
        float angle;
    } *host = malloc(((size_t)l->count + 1) * sizeof *host);
    tn_status s;

    if (!host)
        return tn_error(TN_ERR_MEMORY, "no memory for %lld positions on their way to the device", (long long)l->count);
    if (v->rotary)
        tn_rotary_fill(v, l, &host->angle);
    for (int64_t i = 0; i < l->count && !v->rotary; i++)
        host[i].number = (int32_t)(l->index[0] ? l->index[0][i] : l->origin[0] + l->flat_start + i);
    s = run->api->copy(run->queue, to, host, (uint64_t)l->count * sizeof *host, 1);
    s = s ? s : run->api->sync(run->queue, run->seconds);
    free(host);
    return s;
}

static tn_status place_storages(struct tn_run *run, char **workspace)
{
    const struct tn_plan *plan = run->plan;
    void *arena, *block;
    tn_status s = tn_memory_bind(run->memory, plan, run->at);

    if (!s)
        s = tn_memory_arena(run->memory, plan->arena_bytes + plan->workspace_bytes, &arena);
    if (!s)
        s = tn_memory_block(run->memory, plan->run_bytes + plan->uniform_bytes, &block);
    if (!s)
        s = run->api->fill(run->queue, block, 0, plan->run_bytes + plan->uniform_bytes);
    for (uint32_t i = 0; i < plan->n_storage && !s; i++) {
        const struct tn_storage *x = &plan->storage[i];
        if (x->where == TN_AT_PERSISTENT)
            continue;
        run->at[i] = (char *)(x->where == TN_AT_ARENA ? arena : block) + x->offset;
        if (x->value->kind == TN_VALUE_POSITIONS)
            s = fill_positions(run, x->value, run->at[i]);
    }
    if (s)
        return s;
    run->uniform = (char *)block + plan->run_bytes;
    *workspace = (char *)arena + plan->arena_bytes;
    return TN_OK;
}

/* Page-locked where the device has that, so that copying it waits for nothing. */
static tn_status uniform_room(struct tn_run *run)
{
    const struct tn_device_api *api = run->api;
    void *room = NULL;

    if (!TN_HAS(api, host_free) || !api->host_alloc || !api->host_free) {
        run->uniform_host = tn_alloc(run->arena, run->plan->uniform_bytes);
        return TN_OK;
    }
    tn_status s = api->host_alloc(tn_memory_device(run->memory), run->plan->uniform_bytes + 1, &room);
    run->uniform_host = room, run->locked = !s;
    return s;
}

tn_status tn_run_open(const struct tn_plan *plan, struct tn_memory *memory, double seconds,
                      struct tn_run **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_run *run = tn_alloc(arena, sizeof *run);
    char *workspace;
    tn_status s;

    *run = (struct tn_run){.arena = arena,
                           .plan = plan,
                           .memory = memory,
                           .api = tn_memory_api(memory),
                           .queue = tn_memory_queue(memory),
                           .seconds = seconds,
                           .n_symbol = plan->graph->n_symbol};
    *out = NULL;
    run->at = tn_alloc_array(arena, plan->n_storage + 1u, sizeof *run->at);
    run->symbol = tn_alloc_array(arena, TN_EXPR_SYMBOLS, sizeof *run->symbol);
    s = uniform_room(run);
    if (!s)
        s = place_storages(run, &workspace);
    if (s) {
        tn_run_close(run);
        return s;
    }
    run->segment = tn_alloc_array(arena, 4u * plan->n_part + 1u, sizeof *run->segment);
    for (uint32_t part = 0; part < plan->n_part; part++)
        for (uint32_t way = 0; way < 4; way++)
            bind_segment(run, part, way, workspace);
    bind_tasks(run);
    *out = run;
    return TN_OK;
}

/* A step in thought: what is begun takes its blocks of the stage, what is ended gives them back. */
static tn_status rehearse(struct tn_run *run)
{
    tn_status s = TN_OK;

    for (uint32_t t = 0; t < run->n_go; t++) {
        const struct segment *seg = run->go[t].segment;

        tn_go_bind(&run->go[t]);
        for (uint32_t i = 0; i < seg->n_call && !s; i++)
            s = tn_collective_rehearse(seg->call[i].launch, seg->call[i].state, seg->call[i].l.micro);
    }
    return s;
}

tn_status tn_run_join(struct tn_run *run, struct tn_collectives *c)
{
    run->collectives = c;
    for (uint32_t r = 0; r < run->plan->n_row; r++)
        run->communicates |= run->plan->row[r].way != TN_ROW_COMPUTE;
    return c->way == TN_BY_HOST ? TN_OK : rehearse(run);
}

void tn_run_close(struct tn_run *run)
{
    if (!run)
        return;
    tn_run_forget(run);
    if (run->locked)
        run->api->host_free(tn_memory_device(run->memory), run->uniform_host);
    tn_arena_free(run->arena);
}

/* --- before a step */

tn_status tn_run_feed(struct tn_run *run, const struct tn_value *v, const void *host, uint64_t bytes)
{
    const struct tn_plan *plan = run->plan;
    const struct tn_storage *s = &plan->storage[plan->place[v->id].storage];
    uint32_t parts = s->micro_stride ? plan->n_micro : 1;
    tn_status status = TN_OK;

    if (bytes != parts * tn_plan_bytes(plan, v))
        return tn_error(TN_ERR_SHAPE, "input %s has %u parts of %llu bytes, %llu bytes were given", v->name, parts,
                        (unsigned long long)tn_plan_bytes(plan, v), (unsigned long long)bytes);
    for (uint32_t m = 0; m < parts && !status; m++)
        status = run->api->copy(run->queue, (char *)run->at[plan->place[v->id].storage] + m * s->micro_stride,
                                (const char *)host + m * (bytes / parts), bytes / parts, 1);
    return status ? status : run->api->sync(run->queue, run->seconds);
}

tn_status tn_run_input(struct tn_run *run, const char *name, const void *host, uint64_t bytes)
{
    const struct tn_value *v = tn_graph_find_input(run->plan->graph, name);

    return v ? tn_run_feed(run, v, host, bytes) : tn_error(TN_ERR, "the graph has no input %s", name);
}

uint32_t tn_run_symbol_number(const struct tn_run *run, const char *name)
{
    for (uint32_t i = 0; i < run->n_symbol; i++)
        if (!strcmp(run->plan->graph->symbol[i], name))
            return i;
    return TN_NOWHERE;
}

void tn_run_set_symbol(struct tn_run *run, uint32_t number, double value)
{
    if (number != TN_NOWHERE)
        run->symbol[number] = value;
}

tn_status tn_run_symbol(struct tn_run *run, const char *name, double value)
{
    tn_run_set_symbol(run, tn_run_symbol_number(run, name), value);
    return TN_OK;
}

void tn_run_seed(struct tn_run *run, uint64_t seed, uint64_t step)
{
    run->seed = seed;
    run->step = step;
}

/* --- a step */

tn_status tn_run_uniforms(struct tn_run *run)
{
    const struct tn_plan *plan = run->plan;

    tn_error_clear();                            /* of before: not what a launch will fail of */
    for (uint32_t i = 0; i < plan->n_uniform; i++) {
        void *to = run->uniform_host + plan->uniform[i].offset;
        if (plan->uniform[i].expr)
            tn_expr_uniforms(plan->uniform[i].expr, run->symbol, to);
        else
            memcpy(to,
                   (uint32_t[4]){(uint32_t)run->seed, (uint32_t)(run->seed >> 32), (uint32_t)run->step,
                                 (uint32_t)(run->step >> 32)},
                   16);
    }
    return plan->uniform_bytes
               ? run->api->copy(run->queue, run->uniform, run->uniform_host, plan->uniform_bytes, 1)
               : TN_OK;
}

static tn_status call_failed(const struct tn_run *run, const struct call *c, tn_status s)
{
    const struct tn_row *row = &run->plan->row[c->row];
    const char *by = "the collective";
    char function[64];

    for (int i = 0; i < 2; i++)
        if (row->kernel[i] >= 0 && run->plan->kernel[row->kernel[i]].kernel.state == c->state)
            by = run->plan->kernel[row->kernel[i]].by;
    snprintf(function, sizeof function, "launch of %.40s", row->op);
    return tn_status_of(by, function, s);
}

tn_status tn_call_launch(const struct tn_run *run, const struct call *c)
{
    tn_status s = c->launch(c->state, &c->l);

    return s ? call_failed(run, c, s) : TN_OK;
}

tn_status tn_run_walk(const struct tn_run *run, const struct go *g, const struct go *end)
{
    for (; g < end; g++) {
        const struct call *c = g->segment->call, *last = c + g->segment->n_call;

        tn_go_bind(g);
        for (; c < last; c++) {
            tn_status s = tn_call_launch(run, c);
            if (s)
                return s;
        }
    }
    return TN_OK;
}

/* Uniforms go first, on the queue: a recording finds them where they always are. */
static tn_status go(struct tn_run *run, uint32_t which, uint32_t from, uint32_t to)
{
    tn_status s = which == TN_STRETCH_UPDATE ? TN_OK : tn_run_uniforms(run);

    if (!s)
        s = tn_run_stretch(run, which, run->go + from, run->go + to);
    return s ? s : tn_run_sync(run);
}

tn_status tn_run_compute(struct tn_run *run)
{
    return go(run, TN_STRETCH_COMPUTE, 0, run->n_compute);
}

tn_status tn_run_update(struct tn_run *run)
{
    return go(run, TN_STRETCH_UPDATE, run->n_compute, run->n_go);
}

tn_status tn_run_step(struct tn_run *run)
{
    return go(run, TN_STRETCH_STEP, 0, run->n_go);
}

/* --- after it */

tn_status tn_run_read(struct tn_run *run, const struct tn_value *v, uint32_t micro, void *host,
                      uint64_t bytes)
{
    const struct tn_plan *plan = run->plan;
    const struct tn_plan_place *p = &plan->place[v->id];
    const struct tn_storage *x = p->storage == TN_NOWHERE ? NULL : &plan->storage[p->storage];
    tn_status s;

    if (!x || !p->kept)
        return tn_error(TN_ERR,
                        "%%%u %s was not kept when the plan was made: it cannot be read after the step",
                        v->id, v->name);
    if (bytes != tn_plan_bytes(plan, v) || (micro && (!x->micro_stride || micro >= plan->n_micro)))
        return tn_error(TN_ERR_SHAPE,
                        "%%%u %s: part %u with %llu bytes was asked for, %u parts of %llu are here", v->id,
                        v->name, micro, (unsigned long long)bytes, x->micro_stride ? plan->n_micro : 1,
                        (unsigned long long)tn_plan_bytes(plan, v));
    s = run->api->copy(run->queue, host, (char *)run->at[p->storage] + p->offset + micro * x->micro_stride,
                       bytes, 2);
    return s ? s : run->api->sync(run->queue, run->seconds);
}
