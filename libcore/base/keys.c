/* keys.c - the core's keys, in one table: it checks configurations and makes the help and the man page.
 *
 * Keys of an optimizer or a strategy (beta1, momentum, virtual, ...) are not here: their plugins bring them.
 * A key marked shared belongs to a strategy too, but is here since every configuration may name it. */
#include <math.h>

#include "base/config.h"

#define SECTION(s, n) .section = s, .name = n
#define INT(lo, hi) .type = TN_KEY_INT, .low = lo, .high = hi
#define FLOAT(lo, hi) .type = TN_KEY_FLOAT, .low = lo, .high = hi
#define FLAG .type = TN_KEY_FLAG
#define TEXT(what) .type = TN_KEY_TEXT, .unit = what
#define LIST(what) .type = TN_KEY_LIST, .unit = what
#define CHOICE(words) .type = TN_KEY_CHOICE, .choices = words
#define MOST_STEPS 4294967295.0                  /* a step is 32 bits of the random numbers' counter */
#define MOST_SEED 9007199254740991.0             /* 2^53 - 1: exact in JSON too */

const struct tn_section tn_sections[] = {
    {"model", "What is trained"},
    {"train", "Updates and batches"},
    {"data", "Token files"},
    {"optimizer", "How gradients become updates; further keys belong to the plugin that is named"},
    {"schedule", "The learning rate over time"},
    {"parallel", "The mesh of processes; further keys belong to the strategies"},
    {"backend", "Devices, kernels, communication"},
    {"plugins", "Where plugins are found and which ones are used"},
    {"checkpoint", "The run directory: saving and resuming"},
    {0},
};

const struct tn_key tn_keys[] = {
    /* --- model */
    {SECTION("model", "arch"), CHOICE("gpt2|llama|mixtral"), .preset = "gpt2", .help = "Family of the model"},
    {SECTION("model", "n_layer"), INT(1, 10000), .unit = "blocks", .preset = "12", .help = "Depth"},
    {SECTION("model", "n_head"), INT(1, 65536), .unit = "heads", .preset = "12",
     .help = "Query heads of the attention; divides n_embd"},
    {SECTION("model", "n_kv_head"), INT(1, 65536), .unit = "heads", .otherwise = "n_head",
     .help = "Key and value heads of llama and mixtral; divides n_head"},
    {SECTION("model", "n_embd"), INT(1, 1048576), .preset = "768", .help = "Width"},
    {SECTION("model", "n_inner"), INT(1, 4194304),
     .otherwise = "4 n_embd for gpt2; 8/3 n_embd, rounded up to a multiple of 256, for the others",
     .help = "Width inside the MLP, or inside each expert"},
    {SECTION("model", "vocab_size"), INT(1, 2147483647), .unit = "tokens", .otherwise = "that of the data",
     .help = "Size of the vocabulary"},
    {SECTION("model", "block_size"), INT(1, 16777216), .unit = "tokens", .preset = "1024",
     .help = "Longest context that the model has positions for"},
    {SECTION("model", "dropout"), FLOAT(0, 0.999), .preset = "0",
     .help = "Share of gpt2's activations dropped in training"},
    {SECTION("model", "bias"), FLAG, .otherwise = "yes for gpt2, no for the others, which have none",
     .help = "Whether gpt2's linear layers and norms have a bias"},
    {SECTION("model", "gelu"), CHOICE("erf|tanh"), .preset = "erf",
     .help = "Form of gpt2's activation: exact, or OpenAI's"},
    {SECTION("model", "tie_embeddings"), FLAG, .otherwise = "yes for gpt2, no for the others",
     .help = "Whether the output layer is the embedding"},
    {SECTION("model", "norm_eps"), FLOAT(0, 1), .preset = "1e-5", .help = "Added to the variance in norms"},
    {SECTION("model", "rope_theta"), FLOAT(1, 1e12), .preset = "10000",
     .help = "Base of llama's and mixtral's rotary positions"},
    {SECTION("model", "rope_scaling"), CHOICE("none|linear|llama3"), .preset = "none",
     .help = "How rotary positions are stretched beyond the length that a model was trained for: all angles by 1/rope_factor, "
             "or those of slow pairs alone, as LLaMA 3.1 does it"},
    {SECTION("model", "rope_factor"), FLOAT(1, 1e6), .preset = "8", .help = "How many times as long"},
    {SECTION("model", "rope_low_freq_factor"), FLOAT(0, 1e6), .preset = "1",
     .help = "With llama3: pairs that turn less often than this in rope_original_context are stretched in full"},
    {SECTION("model", "rope_high_freq_factor"), FLOAT(0, 1e6), .preset = "4",
     .help = "With llama3: pairs that turn more often than this are left as they are; more than rope_low_freq_factor"},
    {SECTION("model", "rope_original_context"), INT(1, 16777216), .unit = "tokens", .preset = "8192",
     .help = "With llama3: the length that the model was trained for before"},
    {SECTION("model", "n_expert"), INT(1, 65536), .unit = "experts", .preset = "8",
     .help = "Experts of a mixtral block"},
    {SECTION("model", "top_k"), INT(1, 65536), .unit = "experts", .preset = "2",
     .help = "Experts that see a token; at most n_expert"},
    {SECTION("model", "aux_loss"), FLOAT(0, 1e6), .preset = "0",
     .help = "Weight of what mixtral's training loss gets for experts that are not visited alike; 0: nothing"},
    {SECTION("model", "init_std"), FLOAT(0, 10), .preset = "0.02",
     .help = "Deviation of the initial weights"},

    /* --- train */
    {SECTION("train", "seq_len"), INT(1, 16777216), .unit = "tokens", .otherwise = "model.block_size",
     .help = "Length of a training sequence"},
    {SECTION("train", "global_batch"), INT(1, 16777216), .unit = "sequences", .preset = "12",
     .help = "Sequences of one update, over all processes"},
    {SECTION("train", "micro_batch"), INT(1, 16777216), .unit = "sequences", .otherwise = "global_batch / dp",
     .help =
         "Sequences of one forward pass on one data-parallel rank; global_batch / (micro_batch dp) of them "
         "accumulate, a whole number"},
    {SECTION("train", "steps"), INT(0, MOST_STEPS), .unit = "updates", .preset = "1000",
     .help = "Updates in all, those before a resume included"},
    {SECTION("train", "grad_clip"), FLOAT(0, 1e9), .preset = "1",
     .help = "Largest norm of the gradient; 0: no limit"},
    {SECTION("train", "seed"), INT(0, MOST_SEED), .preset = "1337",
     .help = "Seed of the initial weights, the order of data and the dropout"},
    {SECTION("train", "eval_interval"), INT(0, MOST_STEPS), .unit = "updates", .preset = "250",
     .help = "Updates from one validation to the next; 0: none"},
    {SECTION("train", "eval_batches"), INT(1, 16777216), .unit = "batches", .preset = "20",
     .help = "Batches of global_batch sequences in one validation"},
    {SECTION("train", "log_interval"), INT(1, MOST_STEPS), .unit = "updates", .preset = "1",
     .help = "Updates from one progress line to the next; metrics.jsonl has all of them"},
    {SECTION("train", "recompute"), FLAG, .preset = "no",
     .help = "Whether activations inside a block are computed again in the backward pass instead of kept"},
    {SECTION("train", "nonfinite"), CHOICE("stop|skip|ignore"), .preset = "stop",
     .help = "What follows a loss or gradient norm that is not finite; skip leaves out the update"},
    {SECTION("train", "trace"), INT(0, MOST_STEPS), .unit = "updates", .preset = "0",
     .help = "The update, counted from 1, of which each process writes trace-rank-N.json into the run directory; 0: none"},
    {SECTION("train", "tensorboard"), FLAG, .preset = "no",
     .help = "Whether the numbers of metrics.jsonl are also written as TensorBoard reads them: events.out.tfevents.tenon in "
             "the run directory"},

    /* --- data */
    {SECTION("data", "dir"), TEXT("a folder"), .otherwise = "no data",
     .help = "Folder made by tenon prepare"},
    {SECTION("data", "order"), CHOICE("random|shuffle"), .preset = "random",
     .help = "Windows at random places, or each window once an epoch in shuffled order"},

    /* --- optimizer */
    {SECTION("optimizer", "name"), TEXT("the name of a plugin"), .preset = "adamw",
     .help = "Plugin that makes the update"},
    {SECTION("optimizer", "lr"), FLOAT(0, 1e6), .preset = "1e-3", .help = "Learning rate after the warm-up"},

    {SECTION("optimizer", "lr_scale"), LIST("NAME=FACTOR"), .otherwise = "1 for all",
     .help =
         "Factors of the learning rate for parameters by name, * and ? allowed; the last that fits counts"},
    {SECTION("optimizer", "no_decay"), LIST("names"), .otherwise = "none but tensors of fewer than two dims",
     .help = "Parameters, by name, * and ? allowed, whose weights do not decay"},

    /* --- schedule */
    {SECTION("schedule", "name"), CHOICE("constant|cosine|linear|wsd"), .preset = "constant",
     .help = "Course of the learning rate after the warm-up; wsd is flat, then falls"},
    {SECTION("schedule", "warmup"), INT(0, MOST_STEPS), .unit = "updates", .preset = "0",
     .help = "Updates in which the learning rate rises to its full value"},
    {SECTION("schedule", "steps"), INT(1, MOST_STEPS), .unit = "updates", .otherwise = "train.steps",
     .help = "Update at which min_lr is reached"},
    {SECTION("schedule", "decay"), INT(0, MOST_STEPS), .unit = "updates",
     .otherwise = "a fifth of schedule.steps", .help = "Length of the fall at the end of wsd"},
    {SECTION("schedule", "min_lr"), FLOAT(0, 1e6), .preset = "0",
     .help = "Learning rate at the end; at most optimizer.lr"},

    /* --- parallel */
    {SECTION("parallel", "dp"), INT(1, 1048576), .unit = "ranks",
     .otherwise = "what the other axes leave of the world",
     .help = "Data parallel: replicas with batches of their own"},
    {SECTION("parallel", "pp"), INT(1, 65536), .unit = "ranks", .preset = "1",
     .help = "Pipeline parallel: stages of blocks"},
    {SECTION("parallel", "cp"), INT(1, 65536), .unit = "ranks", .preset = "1",
     .help = "Context parallel: parts of a sequence"},
    {SECTION("parallel", "tp"), INT(1, 65536), .unit = "ranks", .preset = "1",
     .help = "Tensor parallel: parts of a layer"},
    {SECTION("parallel", "ep"), INT(1, 65536), .unit = "ranks", .preset = "1",
     .help = "Expert parallel: experts spread over ranks"},
    {SECTION("parallel", "zero"), INT(0, 3), .shared = 1, .preset = "0",
     .help = "What is sharded over dp: 1 the optimizer's state, 2 gradients too, 3 parameters too"},
    {SECTION("parallel", "shard_within"), INT(2, 1048576), .unit = "ranks", .otherwise = "all of dp",
     .help = "With zero: neighbouring ranks of dp that share one sharded copy, such as those of a host; groups "
             "of them are replicas"},
    {SECTION("parallel", "sp"), FLAG, .shared = 1, .preset = "no",
     .help = "Sequence parallel: whether tp also cuts the sequence between its layers"},
    {SECTION("parallel", "schedule"), CHOICE("afab|1f1b|interleaved"), .shared = 1, .preset = "1f1b",
     .help = "Order of the micro-batches in a pipeline"},

    /* --- backend */
    {SECTION("backend", "device"), TEXT("a kind of device"), .otherwise = "the best that is here",
     .help = "Kind of device, such as cpu or cuda"},
    {SECTION("backend", "kernels"), LIST("names of plugins"), .otherwise = "the device's own, then ref",
     .help = "Plugins of kernels in order of preference"},
    {SECTION("backend", "comm"), TEXT("the name of a plugin"), .otherwise = "the best that is here",
     .help = "Plugin of the communicator, such as self, gloo, mpi or nccl"},
    {SECTION("backend", "bootstrap"), TEXT("the name of a plugin"), .otherwise = "what the launcher offers",
     .help = "Plugin that finds the other processes, such as env or pmix"},
    {SECTION("backend", "threads"), INT(1, 1024), .unit = "threads",
     .otherwise = "the CPUs that this process may use", .help = "Threads of one process"},
    {SECTION("backend", "dtype"), CHOICE("fp32|bf16|fp16"), .preset = "fp32",
     .help = "Numbers of compute and activations; weights of record, sums and norms are fp32"},
    {SECTION("backend", "timeout"), FLOAT(0.1, 604800), .unit = "seconds", .preset = "300",
     .help = "Limit of one wait for other processes"},
    {SECTION("backend", "capture"), CHOICE("auto|yes|no"), .preset = "auto",
     .help = "Whether a step is recorded once and replayed (CUDA graphs): auto, where the device and the "
             "communicator can"},
    {SECTION("backend", "debug"), FLAG, .preset = "no",
     .help = "Whether the ranks compare each collective before it begins, and replicated tensors after each "
             "update, and every call to and from a plugin is checked for its thread and its state; slow"},

    /* --- plugins */
    {SECTION("plugins", "path"), TEXT("folders or files, separated by colons"),
     .otherwise = "the usual places only", .help = "Places that are searched for plugins first"},
    {SECTION("plugins", "dp"), TEXT("the name of a plugin"),
     .otherwise = "ddp, or shard if parallel.zero is set", .help = "Strategy of the axis dp"},
    {SECTION("plugins", "pp"), TEXT("the name of a plugin"), .otherwise = "pp",
     .help = "Strategy of the axis pp"},
    {SECTION("plugins", "cp"), TEXT("the name of a plugin"), .otherwise = "cp",
     .help = "Strategy of the axis cp"},
    {SECTION("plugins", "tp"), TEXT("the name of a plugin"), .otherwise = "tp",
     .help = "Strategy of the axis tp"},
    {SECTION("plugins", "ep"), TEXT("the name of a plugin"), .otherwise = "ep",
     .help = "Strategy of the axis ep"},
    {SECTION("plugins", "passes"), LIST("names of plugins"), .otherwise = "none",
     .help = "Further passes over the graph"},

    /* --- checkpoint */
    {SECTION("checkpoint", "dir"), TEXT("a folder"),
     .otherwise = "runs/NAME, after the configuration file NAME.ini", .help = "The run directory"},
    {SECTION("checkpoint", "interval"), INT(0, MOST_STEPS), .unit = "updates", .preset = "250",
     .help = "Updates from one checkpoint to the next; 0: only after the last"},
    {SECTION("checkpoint", "keep"), INT(0, MOST_STEPS), .unit = "checkpoints", .preset = "3",
     .help = "Checkpoints that stay, the newest; 0: all"},
    {SECTION("checkpoint", "resume"), TEXT("auto, none, a step or a path"), .preset = "auto",
     .help = "Where to go on from; auto: the newest complete checkpoint of dir, if there is one"},
    {SECTION("checkpoint", "gather"), FLAG, .otherwise = "no where all processes see the same dir",
     .help = "Whether the first process writes whole tensors for all, instead of each what it holds"},
    {0},
};
