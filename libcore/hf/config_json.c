/* config_json.c - config.json to the keys of [model], and back.
 *
 * Keys that are in no row say nothing about what is computed (names of files, ids of tokens, hints for generation) and
 * are passed over; those that do and must not, the family lists. */
#include "base/file.h"
#include "base/status.h"
#include "hf/family.h"
#include "train/model_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT (4u << 20)                  /* bytes */

void hf_set(struct hf_reader *r, const char *key, const char *value)
{
    tn_config_case(r->config, key, value);
}

/* --- reading */

static const char *real_text(struct tn_arena *a, double x)
{
    const char *text = NULL;

    for (int digits = 6; digits <= 17; digits++) {
        text = tn_text(a, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    return text;
}

/* NULL: not of that type. */
static const char *value_text(struct tn_arena *a, const json_t *v, uint32_t type)
{
    if (type == TN_KEY_INT)
        return json_is_integer(v) ? tn_text(a, "%" JSON_INTEGER_FORMAT, json_integer_value(v)) : NULL;
    if (type == TN_KEY_FLOAT)
        return json_is_number(v) ? real_text(a, json_number_value(v)) : NULL;
    return json_is_boolean(v) ? json_is_true(v) ? "yes" : "no" : NULL;
}

static void read_key(struct hf_reader *r, const struct hf_key *k)
{
    const json_t *v = json_object_get(r->root, k->json);
    const char *text;

    if (!v || (json_is_null(v) && k->absent)) {
        if (!k->absent)
            hf_list_add(r->problems, "%s is missing", k->json);
        else if (*k->absent)
            hf_set(r, k->key, k->type != TN_KEY_FLAG ? k->absent : !strcmp(k->absent, "true") ? "yes" : "no");
        return;
    }
    text = value_text(r->arena, v, k->type);
    if (text)
        hf_set(r, k->key, text);
    else
        hf_list_add(r->problems, "%s is %s", k->json, k->type == TN_KEY_INT ? "no whole number" : k->type == TN_KEY_FLOAT ? "no number" : "neither true nor false");
}

static void read_fixed(struct hf_reader *r, const struct hf_fixed *f)
{
    const json_t *v = json_object_get(r->root, f->json);
    json_t *want = json_loads(f->value, JSON_DECODE_ANY, NULL);

    if (v && !json_equal(v, want))
        hf_list_add(r->problems, "%s is not %s: that asks for %s, which this program does not compute", f->json, f->value, f->otherwise);
    json_decref(want);
}

static tn_status read_all(struct hf_reader *r, const struct hf_family *f)
{
    struct hf_list problems = {0};

    r->problems = &problems;
    for (const struct hf_key *k = f->keys; k->json; k++)
        read_key(r, k);
    for (const struct hf_fixed *x = f->fixed; x->json; x++)
        read_fixed(r, x);
    f->read(r);
    return hf_list_end(&problems, "%s is of a model that cannot be imported:", r->path);
}

static tn_status load(const char *path, json_t **out)
{
    char *text = NULL;
    size_t bytes;
    json_error_t err;
    tn_status status = tn_file_read(path, CONFIG_LIMIT, &text, &bytes);

    *out = NULL;
    if (status < 0)
        return status;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    free(text);
    if (json_is_object(*out))
        return TN_OK;
    status = *out ? tn_error(TN_ERR_INPUT, "%s is no JSON object", path) : tn_error(TN_ERR_INPUT, "%s:%d: %s", path, err.line, err.text);
    json_decref(*out);
    *out = NULL;
    return status;
}

static tn_status unknown_family(const char *path, const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));

    return tn_error(TN_ERR_INPUT, "%s: model_type is %.60s; these can be imported: %s", path, type ? type : "not said", hf_family_names());
}

tn_status hf_config_read(const char *dir, struct tn_arena *arena, const struct hf_family **family, struct tn_config **out, char *note,
                         size_t note_room)
{
    struct hf_reader r = {.arena = arena, .path = tn_path_join(arena, dir, "config.json"), .note = note, .note_room = note_room};
    json_t *root;
    tn_status status = load(r.path, &root);

    *out = NULL;
    if (status < 0)
        return status;
    r.root = root;
    *family = hf_family_of(root);
    status = *family ? tn_config_open(NULL, 0, NULL, out) : unknown_family(r.path, root);
    r.config = *out;
    if (status == TN_OK)
        status = read_all(&r, *family);
    if (status == TN_OK) {
        tn_model_reach(*out);
        status = tn_config_check(*out);
    }
    json_decref(root);
    return status;
}

/* --- writing */

static json_t *value_of(const struct tn_config *c, const struct hf_key *k)
{
    if (!tn_config_text(c, k->key))
        return k->absent && *k->absent && k->type == TN_KEY_FLAG ? json_boolean(!strcmp(k->absent, "true")) : json_null();
    if (k->type == TN_KEY_INT)
        return json_integer(tn_config_int(c, k->key));
    return k->type == TN_KEY_FLOAT ? json_real(tn_config_float(c, k->key)) : json_boolean(tn_config_flag(c, k->key));
}

/* With 15 digits, where they say all: 1e-5 and not 1.0000000000000001e-5. */
static char *dumped(json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_t *again = text ? json_loads(text, 0, NULL) : NULL;

    if (text && !json_equal(root, again)) {
        free(text);
        text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    }
    json_decref(again);
    return text;
}

char *hf_config_text(const struct hf_family *f, const struct tn_config *c, const char *dtype, int64_t end)
{
    json_t *root = json_pack("{s:[s], s:s, s:s, s:o, s:o}", "architectures", f->architecture, "model_type", f->type, "torch_dtype", dtype,
                             "bos_token_id", end < 0 ? json_null() : json_integer(end), "eos_token_id", end < 0 ? json_null() : json_integer(end));
    char *text;

    for (const struct hf_key *k = f->keys; k->json; k++)
        json_object_set_new(root, k->json, value_of(c, k));
    f->write(c, root);
    text = dumped(root);
    json_decref(root);
    return text;
}
