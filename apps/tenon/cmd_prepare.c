/* cmd_prepare.c - tenon prepare: a text file becomes the directory that data.dir names. */
#include <inttypes.h>

#include "base/config.h"
#include "base/status.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "options.h"

static void report(const struct tn_prepare *p, const struct tn_meta *m, int already)
{
    printf("%s%s: %" PRId64 " symbols (%s), %" PRIu64 " training and %" PRIu64 " validation tokens\n",
           p->out, already ? " is already prepared" : "", m->vocab_size, m->tokenizer, m->train_tokens,
           m->val_tokens);
}

static tn_status prepare(const struct options *o)
{
    struct tn_meta meta;
    int already;

    if (!options_given(o, "input") || !options_given(o, "out"))
        return tn_error(TN_ERR_CONFIG, "--%s is missing: tenon prepare %s",
                        options_given(o, "input") ? "out" : "input", o->command->usage);
    const struct tn_prepare p = {
        .input = options_text(o, "input"),
        .out = options_text(o, "out"),
        .tokenizer = options_text(o, "tokenizer"),
        .vocab_size = options_int(o, "vocab-size"),
        .bpe_dir = options_text(o, "bpe-dir"),
        .end_of_text = options_given(o, "end-of-text"),
        .val_fraction = options_float(o, "val-fraction"),
        .force = options_given(o, "force"),
    };
    tn_status s = tn_prepare(&p, &meta, &already);
    if (s == TN_OK)
        report(&p, &meta, already);
    return s;
}

static int cmd_prepare(int argc, char **argv)
{
    struct options o;
    tn_status s = options_parse(&prepare_command, argc, argv, &o);

    if (s >= 0)
        s = prepare(&o);
    options_free(&o);
    return command_end(s);
}

static const struct option prepare_options[] = {
    {.name = "input", .value = "TEXT", .help = "The text file"},
    {.name = "out", .value = "DIR", .help = "The directory to make, as data.dir names it"},
    {.name = "tokenizer", .value = "KIND",
     .help = "char: one symbol for each character of the text; byte: any file; bpe: byte pairs, learned from the "
             "training part or taken from --bpe-dir; gpt2: GPT-2's own 50257, from --bpe-dir",
     .type = TN_KEY_CHOICE, .choices = "char|byte|bpe|gpt2", .preset = "char"},
    {.name = "vocab-size", .value = "N", .help = "Tokens that bpe learns, the 256 bytes included",
     .type = TN_KEY_INT, .low = 256, .high = TN_TOKENIZER_VOCAB},
    {.name = "bpe-dir", .value = "DIR",
     .help = "A folder with a vocabulary that is ready: tokenizer.json, encoder.json and vocab.bpe, or vocab.json "
             "and merges.txt"},
    {.name = "end-of-text",
     .help = "<|endoftext|> in the text becomes the token that ends a document; else it is text as any other"},
    {.name = "val-fraction", .value = "F",
     .help = "Share of the characters, at the end, that is for validation",
     .type = TN_KEY_FLOAT, .low = 1e-6, .high = 1 - 1e-6, .preset = "0.1"},
    {.name = "force", .help = "Replaces what was prepared there from another text or in another way"},
    {0},
};

const struct command prepare_command = {
    .name = "prepare",
    .help = "Makes a data directory out of a text file",
    .usage = "--input TEXT --out DIR [--tokenizer KIND] [--vocab-size N | --bpe-dir DIR] [--end-of-text] "
             "[--val-fraction F] [--force]",
    .detail = "Writes train.bin and val.bin (uint16 or uint32 token ids, nanoGPT's layout), tokenizer.json "
              "and meta.json. A directory that holds the same already is left as it is. A BPE's tokenizer.json is one "
              "that Hugging Face's library reads, and theirs of that kind are read here.",
    .options = prepare_options,
    .run = cmd_prepare,
};
