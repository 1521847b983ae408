/* engine.c - see engine.h.
 *
 * A plugin that cannot be had is noted as a problem of its key, so that one run lists it together with everything
 * else that is wrong in the file; its section is then excused from the check for unknown keys. */
#include "train/engine.h"
#include <stdlib.h>
#include "base/pool.h"
#include "base/status.h"
#include "plugin/contents.h"
#include "plugin/load.h"
#include "train/model_config.h"

/* The key as errors shall begin with it: "run.ini:7: optimizer.name". */
static const char *place_of(const struct tn_config *c, const char *key, char *out, size_t room)
{
    if (tn_config_is_set(c, key))
        snprintf(out, room, "%s: %s", tn_config_origin(c, key), key);
    else
        snprintf(out, room, "%s", key);
    return out;
}

/* By name where the user gave one, else by score. */
static tn_status choose(struct tn_engine *e, struct tn_config *c, const char *key, const char *id, const void **table)
{
    char place[300];
    const char *name = tn_config_text(c, key);
    tn_status s = name ? tn_registry_get(e->registry, place_of(c, key, place, sizeof place), name, id, table)
                       : tn_registry_best(e->registry, place_of(c, key, place, sizeof place), id, NULL, NULL, table);

    if (s)
        tn_config_problem(c, NULL, "%s", tn_error_text());
    return s;
}

static tn_status find_device(struct tn_engine *e, struct tn_config *c)
{
    char place[300];
    const char *kind = tn_config_text(c, "backend.device");
    const void *table = NULL;
    tn_status s;

    if (!kind) {
        s = choose(e, c, "backend.device", TN_DEVICE_ID, &table);
        e->device_api = table;
        return s;
    }
    s = tn_registry_device(e->registry, place_of(c, "backend.device", place, sizeof place), kind, &e->device_api);
    if (s)
        tn_config_problem(c, NULL, "%s", tn_error_text());
    return s;
}

static tn_status find_kernels(struct tn_engine *e, struct tn_config *c)
{
    const struct tn_kernels *table[TN_MAX_KERNELS];
    char place[300];
    tn_status s = tn_registry_kernels(e->registry, place_of(c, "backend.kernels", place, sizeof place),
                                      tn_config_text(c, "backend.kernels"), e->device_api->kind, table, &e->n_kernels);

    if (s) {
        tn_config_problem(c, NULL, "%s", tn_error_text());
        return s;
    }
    for (uint32_t i = 0; i < e->n_kernels; i++) {
        size_t used = strlen(e->kernel_names);

        e->kernels[i] = (struct tn_plan_kernels){tn_plugin_owner(table[i])->card.note.name, table[i]};
        snprintf(e->kernel_names + used, sizeof e->kernel_names - used, "%s%s", i ? ", " : "", e->kernels[i].name);
    }
    return TN_OK;
}

/* --- the optimizer */

static tn_status find_optimizer(struct tn_engine *e, struct tn_config *c, const struct tn_optimizer **out)
{
    const void *table = NULL;
    tn_status s = choose(e, c, "optimizer.name", TN_OPTIMIZER_ID, &table);

    if (s) {
        tn_config_excuse(c, "optimizer");
        return s;
    }
    *out = table;
    s = tn_config_add(c, "optimizer", (*out)->options, tn_config_text(c, "optimizer.name"));
    if (s)
        tn_config_problem(c, NULL, "%s", tn_error_text());
    return s;
}

/* The options' values, once the configuration has been checked. */
static tn_status settle_optimizer(struct tn_engine *e, const struct tn_config *c, const struct tn_optimizer *o)
{
    struct tn_finish *f = &e->finish;
    char key[128], why[TN_WHY_SIZE];

    *f = (struct tn_finish){.name = tn_config_text(c, "optimizer.name"), .option = o->options, .value = e->option_value, .slots = o->slots, .update = o->update, .build = o->build,
                            .clip = tn_config_float(c, "train.grad_clip")};
    for (; o->options && o->options[f->n_option].key; f->n_option++) {
        if (f->n_option == TN_FINISH_OPTIONS)
            return tn_error(TN_ERR, "optimizer %s has more than %d options", f->name, TN_FINISH_OPTIONS);
        snprintf(key, sizeof key, "optimizer.%s", o->options[f->n_option].key);
        e->option_value[f->n_option] = tn_config_float(c, key);
    }
    if (o->choose)
        o->choose(e->option_value, &f->slots, &f->update);
    if (tn_contents_slots(f->slots, o->options, why) < 0)
        return tn_error(TN_ERR, "optimizer %s: for these options, %s", f->name, why);
    if (!f->update && !f->build)
        return tn_error(TN_ERR, "optimizer %s gives no update for these options", f->name);
    return TN_OK;
}

/* --- strategies and extra passes */

static double pass_option(void *ctx, const char *key)
{
    char name[128];

    snprintf(name, sizeof name, "parallel.%s", key);
    return tn_config_has(ctx, name) ? tn_config_float(ctx, name) : 0;
}

static const char *pass_option_text(void *ctx, const char *key)
{
    char name[128];

    snprintf(name, sizeof name, "parallel.%s", key);
    return tn_config_has(ctx, name) ? tn_config_text(ctx, name) : NULL;
}

static void find_pass(struct tn_engine *e, struct tn_config *c, const char *key, const char *name, const char *axis)
{
    const void *table = NULL;
    const struct tn_pass *pass;
    char place[300];

    if (tn_registry_get(e->registry, place_of(c, key, place, sizeof place), name, TN_PASS_ID, &table)) {
        tn_config_problem(c, NULL, "%s", tn_error_text());
        tn_config_excuse(c, "parallel");
        return;
    }
    pass = table;
    if (tn_config_add(c, "parallel", pass->options, name))
        tn_config_problem(c, NULL, "%s", tn_error_text());
    e->pass[e->n_pass++] = (struct tn_pass_entry){tn_plugin_owner(table)->card.note.name, axis, pass, pass_option, c, pass_option_text, 0};
}

/* The ranks that share what zero shards are the axis ep, inside dp. */
static int shards_inside(const struct tn_config *c)
{
    return tn_config_text(c, "parallel.shard_within") != NULL;
}

static const char *strategy_of(const struct tn_config *c, int axis)
{
    char key[32];

    snprintf(key, sizeof key, "plugins.%s", tn_axis_name[axis]);
    if (tn_config_text(c, key))
        return tn_config_text(c, key);
    if (axis == 0)
        return tn_config_int(c, "parallel.zero") > 0 && !shards_inside(c) ? "shard" : "ddp";
    return axis == 1 && shards_inside(c) ? "shard" : tn_axis_name[axis];
}

static void find_passes(struct tn_engine *e, struct tn_config *c)
{
    static const int forward_order[TN_AXES] = {4, 3, 1, 0, 2};       /* tp cp ep dp pp */
    const char *const *extra;
    size_t n = tn_config_list(c, "plugins.passes", &extra);
    char key[32];

    for (int i = 0; i < TN_AXES; i++) {
        int axis = forward_order[i];

        snprintf(key, sizeof key, "plugins.%s", tn_axis_name[axis]);
        if (e->world->mesh.size[axis] == 1 && tn_config_is_set(c, key) && !e->world->rank &&
            e->world->bootstrap)
            tn_log(TN_LOG_WARNING, "%s: %s = %s is not used: the axis has one rank", tn_config_origin(c, key),
                   key, tn_config_text(c, key));
        if (e->world->mesh.size[axis] == 1)
            continue;
        find_pass(e, c, key, strategy_of(c, axis), tn_axis_name[axis]);
        if (e->n_pass && axis == 1 && shards_inside(c))
            e->pass[e->n_pass - 1].early = 1;
    }
    if (e->world->mesh.size[1] > 1 && !shards_inside(c))     /* a part of dp: its strategy owns what experts leave */
        find_pass(e, c, "plugins.dp", strategy_of(c, 0), tn_axis_name[1]);
    for (size_t i = 0; i < n && e->n_pass < sizeof e->pass / sizeof *e->pass; i++)
        find_pass(e, c, "plugins.passes", extra[i], "");
}

/* Ranks that run on the same CPUs share them. */
static uint32_t threads_of(const struct tn_config *c, const struct tn_world *w)
{
    uint32_t each = tn_cpus() / w->cpu_sharers;

    if (tn_config_text(c, "backend.threads"))
        return (uint32_t)tn_config_int(c, "backend.threads");
    return each ? each : 1;
}

tn_status tn_engine_find(struct tn_config *c, const struct tn_place *place, struct tn_engine *e)
{
    const struct tn_optimizer *optimizer = NULL;
    tn_status s;

    *e = (struct tn_engine){0};
    s = tn_registry_open(tn_config_text(c, "plugins.path"), &e->registry);
    if (s)
        return s;
    if (!find_device(e, c))
        find_kernels(e, c);
    find_optimizer(e, c, &optimizer);
    if (!tn_world_find(e->registry, c, place, &e->world))
        find_passes(e, c);
    tn_model_reach(c);
    s = tn_config_check(c);
    if (!s)
        s = settle_optimizer(e, c, optimizer);
    if (e->world)
        s = tn_world_join(e->world, c, s);
    if (!s)
        s = tn_pool_start(threads_of(c, e->world));
    if (s)
        tn_engine_close(e);
    return s;
}

/* "fp32, bf16 and int32" */
static const char *names_of(uint32_t dtypes, char *out, size_t room)
{
    static const char *const name[] = {
        [TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16", [TN_I32] = "int32", [TN_F64] = "fp64", [TN_I64] = "int64", [TN_U8] = "uint8",
    };
    uint32_t left = (uint32_t)__builtin_popcount(dtypes & ((2u << TN_U8) - 2));
    size_t n = 0;

    snprintf(out, room, "nothing");
    for (uint32_t d = TN_F32; d <= TN_U8 && n < room; d++)
        if (dtypes >> d & 1)
            n += (size_t)snprintf(out + n, room - n, "%s%s", name[d], --left > 1 ? ", " : left ? " and " : "");
    return out;
}

/* Can the device hold what backend.dtype asks for? */
static tn_status check_dtype(const struct tn_engine *e, const struct tn_device_info *info, const struct tn_config *c)
{
    static const struct {
        const char *name;
        uint32_t dtype;
    } low[] = {{"bf16", TN_BF16}, {"fp16", TN_F16}};
    char has[80];

    for (int i = 0; i < 2; i++)
        if (tn_config_is(c, "backend.dtype", low[i].name) && !(info->dtypes & 1u << low[i].dtype))
            return tn_config_fail(c, "backend.dtype", "the device %s (%s, of the plugin %s) has %s, not %s; fp32 runs on every device",
                                  e->device_api->kind, info->name, tn_plugin_owner(e->device_api)->card.note.name,
                                  names_of(info->dtypes, has, sizeof has), low[i].name);
    return TN_OK;
}

tn_status tn_engine_planned(const struct tn_engine *e, const struct tn_config *c, tn_status planned)
{
    struct tn_device_info info = {.struct_size = sizeof info};
    struct tn_device *device = NULL;
    char *said;
    int lacks;
    tn_status s;

    if (planned >= 0 || tn_config_is(c, "backend.dtype", "fp32") || !(said = strdup(tn_error_text())))
        return planned;
    s = e->device_api->open(e->world->place.local_rank, &device);
    if (!s)
        s = e->device_api->info(device, &info);
    lacks = !s && (s = check_dtype(e, &info, c));
    if (!lacks)                                  /* so it is not why; nor is a device that does not open */
        s = tn_error_long(planned, said);
    if (device)
        e->device_api->close(device);
    free(said);
    return s;
}

tn_status tn_engine_open(struct tn_engine *e, const struct tn_config *c)
{
    tn_status s = e->device_api->open(e->world->place.local_rank, &e->device);

    if (s)
        return s;
    e->info = (struct tn_device_info){.struct_size = sizeof e->info};
    s = e->device_api->info(e->device, &e->info);
    if (!s)
        s = check_dtype(e, &e->info, c);
    if (!s)
        s = tn_world_open(e->world);
    snprintf(e->device_text, sizeof e->device_text, "%s (%s)", e->device_api->kind, e->info.name);
    return s;
}

void tn_engine_close(struct tn_engine *e)
{
    tn_world_close(e->world);
    if (e->device)
        e->device_api->close(e->device);
    tn_registry_close(e->registry);
    *e = (struct tn_engine){0};
}

int tn_engine_claims(void *ctx, const char *op)
{
    const struct tn_engine *e = ctx;

    for (uint32_t i = 0; i < e->n_kernels; i++)
        for (const char *const *o = e->kernels[i].table->ops; *o; o++)
            if (!strcmp(*o, op))
                return 1;
    return 0;
}
