/* cmd_export.c - tenon export: a checkpoint in the form that Hugging Face's library opens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "checkpoints.h"
#include "hf/hf.h"
#include "options.h"

static uint32_t dtype_of(const char *name)
{
    return !strcmp(name, "bf16") ? TN_BF16 : !strcmp(name, "fp16") ? TN_F16 : TN_F32;
}

static tn_status export(const struct options *o)
{
    struct tn_hf_export e = {.dir = o->file[1], .dtype = dtype_of(options_text(o, "dtype")),
                             .shard = (uint64_t)(options_float(o, "shard-size") * 1e6)};
    struct tn_hf_report r;
    char *path = NULL;
    tn_status status = checkpoint_find(o, o->file[0], &path);

    e.checkpoint = path;
    if (status == TN_OK)
        status = tn_hf_export(&e, &r);
    if (status == TN_OK) {
        printf("%s: %" PRId64 " parameters of %s, %.1f MB in %u file%s of %s%s\n", r.family, r.parameters, path, (double)r.bytes / 1e6, r.files,
               r.files > 1 ? "s" : "", o->file[1], r.tokenizer ? ", with tokenizer.json" : "");
        if (*r.note)
            printf("note: %s\n", r.note);
    }
    free(path);
    return status;
}

static int cmd_export(int argc, char **argv)
{
    struct options o;
    tn_status status = options_parse(&export_command, argc, argv, &o);

    if (status >= 0)
        status = export(&o);
    options_free(&o);
    return command_end(status);
}

static const struct option options[] = {
    {.name = "step", .value = "N", .help = "The checkpoint of this step, instead of the newest", .type = TN_KEY_INT, .low = 0,
     .high = 4294967295.0},
    {.name = "dtype", .value = "TYPE", .help = "Of the weights", .type = TN_KEY_CHOICE, .choices = "fp32|bf16|fp16", .preset = "fp32"},
    {.name = "shard-size", .value = "MB", .help = "Of a file, at most: a larger model is in several, with an index", .type = TN_KEY_FLOAT,
     .low = 0.001, .high = 1e9, .preset = "5000"},
    {0},
};

const struct command export_command = {
    .name = "export",
    .help = "Writes a checkpoint in Hugging Face's form",
    .usage = "RUN DIR [--step N] [--dtype TYPE] [--shard-size MB]",
    .detail = "RUN is a run directory or the directory of one checkpoint, of any layout. DIR is made: config.json, "
              "model.safetensors (or several files and their index) and tokenizer.json, if there is one. In fp32 the bits "
              "of all weights are kept, and tenon import gives them back.",
    .options = options,
    .files_min = 2,
    .files_max = 2,
    .run = cmd_export,
};
