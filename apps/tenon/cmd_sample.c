/* cmd_sample.c - tenon sample: text from a run.
 *
 * A checkpoint holds all that is needed: configuration, weights, tokenizer. The model sees the last seq_len
 * tokens; when there are more, the window slides (generate.c). Several texts after the same prompt are made together.
 * The first appears as it is made, held back only until a character is whole; the others follow it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/file.h"
#include "base/status.h"
#include "checkpoints.h"
#include "data/tokenizer.h"
#include "generate.h"
#include "options.h"
#include "train/checkpoint.h"
#include "train/choose.h"
#include "train/session.h"
#include "world/world.h"

#define SEPARATOR "---------------\n"             /* between texts */
#define PROMPT_LIMIT (64u << 20)                 /* bytes */

struct sample {
    const struct options *o;
    struct tn_arena *arena;
    struct tn_config *config;
    struct tn_session *session;
    struct tn_checkpoint *checkpoint;
    struct tn_tokenizer *tokenizer;
    struct tn_decoder *decoder;
    struct tn_chooser **chooser;                 /* [texts] */
    struct generator generator;
    const char *prompt;
    size_t prompt_bytes;
    int32_t *ids;                                /* [texts, room]: prompt and what followed */
    float *logits;                               /* [texts, vocab] */
    int64_t texts, room, count;                  /* count: ids so far, of each */
    double seconds[2];                           /* up to the first token, and all further ones */
};

/* --- the checkpoint */

/* What concerns other processes or the training is left out: one process is enough here, however many
 * trained. So are places of plugins: a checkpoint may come from anywhere and must not say whose code runs. */
static int is_of_no_use(const char *key)
{
    return !strncmp(key, "parallel.", 9) || !strncmp(key, "optimizer.", 10) || !strcmp(key, "backend.comm") ||
           !strcmp(key, "backend.bootstrap") || !strcmp(key, "train.micro_batch") ||
           !strcmp(key, "plugins.path");
}

static tn_status check_settings(const struct sample *s)
{
    for (int i = 0; i < s->o->settings; i++)
        if (strncmp(s->o->setting[i], "backend.", 8) && strncmp(s->o->setting[i], "plugins.", 8))
            return tn_error(TN_ERR_CONFIG, "sample: %.120s: the checkpoint says what the model is; only keys "
                            "of [backend] and [plugins] can be set here", s->o->setting[i]);
    return TN_OK;
}

static tn_status configure(struct sample *s)
{
    const struct tn_saved *state = tn_checkpoint_state(s->checkpoint);
    tn_status status = tn_config_open(NULL, s->o->settings, s->o->setting, &s->config);
    const char *key;
    json_t *value;

    if (status < 0)
        return status;
    json_object_foreach((json_t *)state->config, key, value)
        if (json_is_string(value) && !is_of_no_use(key))
            tn_config_case(s->config, key, json_string_value(value));
    return tn_session_configure(s->config, &s->session);
}

static tn_status open_tokenizer(struct sample *s)
{
    const struct tn_saved *state = tn_checkpoint_state(s->checkpoint);

    if (options_given(s->o, "ids"))              /* neither read nor written: no text at all */
        return TN_OK;
    if (!tn_saved_find(state, "tokenizer.json"))
        return tn_error(TN_ERR_INPUT,
                        "%s has no tokenizer.json: its data had none, so there is no text to make; --ids makes "
                        "numbers of tokens",
                        state->dir);
    tn_status status = tn_tokenizer_load(tn_path_join(s->arena, state->dir, "tokenizer.json"), &s->tokenizer);
    return status < 0 ? status : tn_decoder_new(s->tokenizer, &s->decoder);
}

static tn_status open_model(struct sample *s)
{
    struct tn_session_options use;
    tn_status status;

    s->generator = (struct generator){.samples = s->texts, .chunk = options_int(s->o, "chunk")};
    generator_plan(&s->generator, s->session, s->count, s->count + options_int(s->o, "tokens"), !options_given(s->o, "no-cache"), &use);
    status = tn_session_open(s->session, &use);
    if (status == TN_OK)
        status = tn_checkpoint_match(s->checkpoint, s->session, 0);
    return status < 0 ? status : tn_checkpoint_load(s->checkpoint, s->session, 0);
}

/* --- the prompt */

static tn_status read_prompt(const struct sample *s, const char **text, size_t *bytes)
{
    const char *file = options_text(s->o, "prompt-file");
    char *data;
    tn_status status;

    *text = options_given(s->o, "prompt") ? options_text(s->o, "prompt") : "";
    *bytes = strlen(*text);
    if (!file)
        return TN_OK;
    if (options_given(s->o, "prompt"))
        return tn_error(TN_ERR_CONFIG, "sample: --prompt and --prompt-file were both given, one is enough");
    if ((status = tn_file_read(file, PROMPT_LIMIT, &data, bytes)) < 0)
        return status;
    char *copy = tn_alloc(s->arena, *bytes + 1);
    memcpy(copy, data, *bytes);
    free(data);
    *text = copy;
    return TN_OK;
}

/* Something has to stand before the first token: a newline, as at the beginning of a text, else token 0. */
static void begin_anyhow(struct sample *s)
{
    uint64_t count = 0;

    if (tn_tokenizer_encode(s->tokenizer, "newline", "\n", 1, s->ids, &count) < 0 || count == 0) {
        tn_error_clear();
        s->ids[0] = 0;
    }
    s->count = 1;
}

/* "464 3290, 318": numbers of tokens. */
static tn_status read_ids(struct sample *s, const char *text)
{
    for (const char *at = text + strspn(text, " ,\t\n"); *at; at += strspn(at, " ,\t\n")) {
        char *end;
        long long id;

        errno = 0;
        id = strtoll(at, &end, 10);
        if (end == at || !strchr(" ,\t\n", *end) || errno || id < 0 || id > INT32_MAX)
            return tn_error(TN_ERR_CONFIG, "sample: with --ids the prompt is numbers of tokens, and \"%.20s\" does not begin with one", at);
        s->ids[s->count++] = (int32_t)id;
        at = end;
    }
    if (!s->count)
        s->ids[s->count++] = 0;
    return TN_OK;
}

static tn_status encode_prompt(struct sample *s)
{
    const char *text;
    size_t bytes;
    uint64_t count = 0;
    tn_status status = read_prompt(s, &text, &bytes);

    if (status < 0)
        return status;
    s->texts = options_int(s->o, "samples");
    s->room = (int64_t)bytes + 2 + options_int(s->o, "tokens");
    s->ids = calloc((size_t)s->texts, (size_t)s->room * sizeof *s->ids);
    if (!s->ids)
        return tn_error(TN_ERR_MEMORY, "no memory for %zu bytes of prompt", bytes);
    s->prompt = text;
    s->prompt_bytes = bytes;
    if (!s->tokenizer)
        return read_ids(s, text);
    status = tn_tokenizer_encode(
        s->tokenizer, options_given(s->o, "prompt-file") ? options_text(s->o, "prompt-file") : "--prompt",
        text, bytes, s->ids, &count);
    s->count = (int64_t)count;
    if (status == TN_OK && count == 0)
        begin_anyhow(s);
    return status;
}

/* --- generation */

/* Text k is drawn with the seed + k, so it is what that seed alone gives. */
static tn_status open_choosers(struct sample *s)
{
    struct tn_choice choice = {.temperature = options_given(s->o, "greedy") ? 0 : options_float(s->o, "temperature"),
                               .top_k = options_int(s->o, "top-k"),
                               .top_p = options_float(s->o, "top-p"),
                               .seed = (uint64_t)options_int(s->o, "seed")};
    tn_status status = TN_OK;

    s->chooser = calloc((size_t)s->texts, sizeof *s->chooser);
    if (!s->chooser)
        return tn_error(TN_ERR_MEMORY, "no memory to choose tokens of %" PRId64 " texts", s->texts);
    for (int64_t k = 0; k < s->texts && status == TN_OK; k++, choice.seed++)
        status = tn_chooser_new(s->tokenizer ? tn_tokenizer_vocab_size(s->tokenizer) : s->generator.vocab, &choice, &s->chooser[k]);
    return status;
}

static tn_status make_room(struct sample *s)
{
    int64_t vocab = tn_session_model(s->session)->vocab_size;
    tn_status status = generator_open(&s->generator);

    s->logits = calloc((size_t)s->texts, (size_t)vocab * sizeof *s->logits);
    if (status < 0 || !s->logits)
        return status < 0 ? status : tn_error(TN_ERR_MEMORY, "no memory for the logits of %" PRId64 " texts", s->texts);
    for (int64_t i = 0; i < s->count && !s->tokenizer; i++)
        if (s->ids[i] >= vocab)
            return tn_error(TN_ERR_CONFIG, "sample: the model has no token %" PRId32 ", only 0 to %" PRId64, s->ids[i], vocab - 1);
    if (s->tokenizer && tn_tokenizer_vocab_size(s->tokenizer) > vocab)
        return tn_error(
            TN_ERR_INPUT, "%s/tokenizer.json has %" PRId64 " tokens, the model beside it only %" PRId64,
            tn_checkpoint_state(s->checkpoint)->dir, tn_tokenizer_vocab_size(s->tokenizer), vocab);
    for (int64_t k = 1; k < s->texts; k++)
        memcpy(s->ids + k * s->room, s->ids, (size_t)s->count * sizeof *s->ids);
    return open_choosers(s);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The token behind the last one, of each text. Ids that the model has beyond the tokenizer's (a vocabulary that was
 * rounded up) are never chosen. */
static tn_status next(struct sample *s, int further)
{
    double start = now();
    int64_t vocab = s->generator.vocab, id;
    tn_status status = generator_next(&s->generator, s->ids, s->room, s->count, s->logits);

    for (int64_t k = 0; k < s->texts && status == TN_OK; k++) {
        status = tn_choose(s->chooser[k], s->logits + k * vocab, s->count, &id);
        s->ids[k * s->room + s->count] = (int32_t)id;
    }
    s->count++;
    s->seconds[further] += now() - start;
    return status;
}

/* 0: nobody reads any more. */
static int emit(const char *text, uint64_t bytes)
{
    return fwrite(text, 1, (size_t)bytes, stdout) == bytes && !fflush(stdout);
}

/* A token in words, or its number. */
static tn_status emit_token(struct sample *s, int32_t id, int *open)
{
    char number[16];
    const char *text;
    uint64_t bytes;
    tn_status status = TN_OK;

    if (!s->tokenizer) {
        snprintf(number, sizeof number, " %" PRId32, id);
        *open = emit(number, strlen(number));
        return TN_OK;
    }
    status = tn_decoder_put(s->decoder, id, &text, &bytes);
    if (status == TN_OK)
        *open = emit(text, bytes);
    return status;
}

static int emit_end(struct sample *s)
{
    const char *text = "";
    uint64_t bytes = 0;

    if (s->tokenizer)
        tn_decoder_flush(s->decoder, &text, &bytes);
    return emit(text, bytes) && emit("\n", 1);
}

/* All of text k > 0, whose first `prompt` ids stand for the prompt. */
static tn_status emit_other(struct sample *s, int64_t k, int64_t prompt, int *open)
{
    tn_status status = TN_OK;

    *open = emit(SEPARATOR, strlen(SEPARATOR)) && emit(s->prompt, s->prompt_bytes);
    for (int64_t i = prompt; i < s->count && status == TN_OK && *open; i++)
        status = emit_token(s, s->ids[k * s->room + i], open);
    if (*open)
        *open = emit_end(s);
    return status;
}

static void say_times(const struct sample *s, int64_t prompt)
{
    int64_t more = s->count - prompt - 1;

    fprintf(stderr, "%" PRId64 " tokens of prompt and the first one: %.3f s", prompt, s->seconds[0]);
    if (more > 0)
        fprintf(stderr, "; %" PRId64 " further ones, %" PRId64 " text%s: %.3f s, %.1f tokens/s", more, s->texts, s->texts > 1 ? "s" : "",
                s->seconds[1], (double)(more * s->texts) / s->seconds[1]);
    fprintf(stderr, "%s\n", s->generator.cached ? "" : " (no caches)");
}

static tn_status generate(struct sample *s)
{
    int64_t prompt = s->count, end = s->count + options_int(s->o, "tokens");
    int open = emit(s->prompt, s->prompt_bytes);
    tn_status status = TN_OK;

    while (s->count < end && status == TN_OK && open) {
        status = next(s, s->count > prompt);
        if (status == TN_OK)
            status = emit_token(s, s->ids[s->count - 1], &open);
    }
    if (open)
        open = emit_end(s);
    for (int64_t k = 1; k < s->texts && status == TN_OK && open; k++)
        status = emit_other(s, k, prompt, &open);
    if (status == TN_OK && options_given(s->o, "stats") && s->count > prompt)
        say_times(s, prompt);
    return status;
}

static tn_status sample_all(struct sample *s)
{
    char *path;
    tn_status status = check_settings(s);

    if (status < 0 || (status = checkpoint_find(s->o, s->o->file[0], &path)) < 0)
        return status;
    status = tn_checkpoint_open(path, &s->checkpoint);
    free(path);
    if (status == TN_OK)
        status = open_tokenizer(s);
    if (status == TN_OK)
        status = encode_prompt(s);
    if (status == TN_OK)
        status = configure(s);
    if (status == TN_OK)
        status = open_model(s);
    if (status == TN_OK)
        status = make_room(s);
    return status < 0 ? status : generate(s);
}

static tn_status sample(const struct options *o)
{
    struct sample s = {.o = o, .arena = tn_arena_new()};
    tn_status status = sample_all(&s);

    free(s.ids);
    free(s.logits);
    for (int64_t k = 0; k < s.texts && s.chooser; k++)
        tn_chooser_free(s.chooser[k]);
    free(s.chooser);
    generator_close(&s.generator);
    tn_decoder_free(s.decoder);
    tn_tokenizer_free(s.tokenizer);
    tn_checkpoint_close(s.checkpoint);
    if (status < 0)
        tn_world_abandon(tn_session_world(s.session), tn_error_text());
    tn_session_close(s.session);
    tn_config_free(s.config);
    tn_arena_free(s.arena);
    return status;
}

static int cmd_sample(int argc, char **argv)
{
    struct options o;
    tn_status status = options_parse(&sample_command, argc, argv, &o);

    if (status >= 0)
        status = sample(&o);
    options_free(&o);
    return command_end(status);
}

static const struct option options[] = {
    {.name = "prompt", .value = "TEXT", .help = "What the text begins with"},
    {.name = "prompt-file", .value = "FILE", .help = "A file with what the text begins with"},
    {.name = "tokens", .value = "N", .help = "Tokens to make", .type = TN_KEY_INT, .low = 0, .high = 1e9,
     .preset = "200"},
    {.name = "temperature", .value = "T", .help = "Divides the logits; 0 always takes the likeliest token",
     .type = TN_KEY_FLOAT, .low = 0, .high = 1e6, .preset = "0.8"},
    {.name = "top-k", .value = "K", .help = "Only the K likeliest tokens; 0: all", .type = TN_KEY_INT,
     .low = 0, .high = 1e9, .preset = "200"},
    {.name = "top-p", .value = "P", .help = "Only the fewest tokens that make P of the probability",
     .type = TN_KEY_FLOAT, .low = 0, .high = 1, .preset = "1"},
    {.name = "seed", .value = "S", .help = "Of the draws; the same seed, the same text", .type = TN_KEY_INT,
     .low = 0, .high = 9007199254740991.0, .preset = "1337"},
    {.name = "step", .value = "N", .help = "The checkpoint of this step, instead of the newest",
     .type = TN_KEY_INT, .low = 0, .high = 4294967295.0},
    {.name = "greedy", .help = "Always the likeliest token, as --temperature 0"},
    {.name = "ids", .help = "Prompt and text are numbers of tokens, and no tokenizer is needed"},
    {.name = "samples", .value = "N", .help = "Texts after the same prompt, made together; the k-th as with seed S + k - 1",
     .type = TN_KEY_INT, .low = 1, .high = 4096, .preset = "1"},
    {.name = "no-cache", .help = "Computes the whole window for each token, keeping nothing of the last"},
    {.name = "chunk", .value = "N", .help = "Tokens of the prompt that are read at once", .type = TN_KEY_INT, .low = 1, .high = 1e6,
     .preset = "128"},
    {.name = "stats", .help = "Says on stderr how long it took"},
    {0},
};

const struct command sample_command = {
    .name = "sample",
    .help = "Generates text from a run directory",
    .usage = "RUN [--prompt TEXT | --prompt-file FILE] [--tokens N] [--temperature T] [--top-k K] "
             "[--top-p P] [--seed S] [--step N] [--greedy] [--ids] [--samples N] [--no-cache] [--chunk N] [--stats] "
             "[backend.key=value ...]",
    .detail = "RUN is a run directory, whose newest checkpoint is taken, or the directory of one checkpoint. "
              "The text goes to stdout behind its prompt. Without a prompt it begins after a newline, or "
              "after token 0 where the vocabulary has no newline. The model sees the last train.seq_len tokens. Up to there "
              "keys and values of earlier tokens are kept, and a token costs one token's work; beyond, positions shift "
              "with each token, so all of the window is computed for each.",
    .options = options,
    .files_min = 1,
    .files_max = 1,
    .settings = 1,
    .run = cmd_sample,
};
