/* cmd_import.c - tenon import: a model of Hugging Face's becomes a run. */
#include <inttypes.h>
#include <stdio.h>

#include "hf/hf.h"
#include "options.h"

static tn_status import(const struct options *o)
{
    struct tn_hf_report r;
    tn_status status = tn_hf_import(o->file[0], o->file[1], options_text(o, "tokenizer"), &r);

    if (status < 0)
        return status;
    printf("%s: %" PRId64 " parameters in %" PRId64 " tensors of %u file%s", r.family, r.parameters, r.tensors, r.files, r.files > 1 ? "s" : "");
    if (r.ignored)
        printf(", %" PRId64 " that hold no weights of their own left out", r.ignored);
    printf("\nsaved %s/step-00000000%s, and its keys in %s/import.ini\n", o->file[1], r.tokenizer ? " with its tokenizer" : "", o->file[1]);
    if (*r.note)
        printf("note: %s\n", r.note);
    return TN_OK;
}

static int cmd_import(int argc, char **argv)
{
    struct options o;
    tn_status status = options_parse(&import_command, argc, argv, &o);

    if (status >= 0)
        status = import(&o);
    options_free(&o);
    return command_end(status);
}

static const struct option options[] = {
    {.name = "tokenizer", .value = "FILE", .help = "The tokenizer.json to take, instead of that of DIR"},
    {0},
};

const struct command import_command = {
    .name = "import",
    .help = "Makes a run of a model in Hugging Face's form",
    .usage = "DIR RUN [--tokenizer FILE]",
    .detail = "DIR has config.json and the weights as model.safetensors, or in several files with "
              "model.safetensors.index.json, in fp32, bf16 or fp16. Nothing of it is run, and weights in pickles are "
              "refused. RUN becomes a run directory with one checkpoint, of step 0 and without an optimizer's state: "
              "tenon sample RUN generates, tenon train RUN/import.ini data.dir=... goes on training. Every tensor that is "
              "missing, left over or of another shape is listed.",
    .options = options,
    .files_min = 2,
    .files_max = 2,
    .run = cmd_import,
};
