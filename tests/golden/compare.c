/* compare.c - is what `tenon step` wrote what the case says?    compare CASE.safetensors OUT.safetensors
 *
 * The case was computed in float64, the run in fp32; each kind of tensor has a tolerance of some ten times
 * the rounding that a correct run shows:
 *   loss, gnorm   2e-6 of the value; gnorm after an update by an adaptive optimizer 1e-5, for the weights it is
 *                 taken at differ by what is said of after.*
 *   logits        1e-5 of the largest logit
 *   grad.*        1e-5 of the largest value in the tensor, and 1e-6 of the largest gradient of the model (for
 *                 gradients that are zero in theory, such as those of the keys' bias)
 *   after.*       1e-5 of the largest value in the tensor, and what an adaptive optimizer makes of the
 *                 rounding of a gradient g: lr steps min(1, 3e-6 G / |g|), G the model's largest gradient
 * Prints the worst of each kind; exit 1 if one is beyond its tolerance, missing, of another shape, no number.
 * Without arguments it proves itself on small files. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"
#include "ckpt/safetensors.h"

struct judge {
    const struct tn_safetensors *want, *got;
    double largest_grad, lr, steps;
    int adaptive, bad;
    double worst[4];
    const char *worst_name[4];
};
static const char *const kinds[] = {"loss", "gnorm", "logits", "grad", "after"};

static double value(const struct tn_tensor *t, uint64_t i)
{
    float f;
    double d;

    if (t->dtype == TN_F64)
        return memcpy(&d, (const char *)t->data + 8 * i, 8), d;
    return memcpy(&f, (const char *)t->data + 4 * i, 4), (double)f;
}

static uint64_t count(const struct tn_tensor *t)
{
    return t->bytes / tn_file_dtype_bytes(t->dtype);
}

static double largest(const struct tn_tensor *t)
{
    double most = 0;

    for (uint64_t i = 0; i < count(t); i++)
        most = fmax(most, fabs(value(t, i)));
    return most;
}

/* "grad.a.b" -> 3; -1: not compared. */
static int kind_of(const char *name)
{
    size_t n = strcspn(name, ".");

    for (int k = 0; k < 5; k++)
        if (n == strlen(kinds[k]) && !strncmp(name, kinds[k], n))
            return k;
    return -1;
}

static double tolerance(const struct judge *j, int kind, const struct tn_tensor *want, double most,
                        uint64_t i)
{
    char name[600];
    const struct tn_tensor *grad;

    switch (kind) {
    case 0: return 2e-6 * fabs(value(want, i));
    case 1: return (j->adaptive && i ? 1e-5 : 2e-6) * fabs(value(want, i));
    case 2: return 1e-5 * most;
    case 3: return 1e-5 * most + 1e-6 * j->largest_grad;
    default: break;
    }
    snprintf(name, sizeof name, "grad.%s", want->name + strlen("after."));
    grad = tn_safetensors_find(j->want, name);
    if (!j->adaptive || !grad)
        return 1e-5 * most;
    return 1e-5 * most + j->lr * j->steps * fmin(1, 3e-6 * j->largest_grad / (fabs(value(grad, i)) + 1e-30));
}

static void complain(struct judge *j, const char *name, const char *what)
{
    printf("%s: %s\n", name, what);
    j->bad++;
}

static void compare_one(struct judge *j, int kind, const struct tn_tensor *want)
{
    const struct tn_tensor *got = tn_safetensors_find(j->got, want->name);
    int slot = kind < 2 ? 0 : kind - 1;
    double most = largest(want), worst = 0;
    char text[80];

    if (!got) {
        complain(j, want->name, "missing");
        return;
    }
    if (got->rank != want->rank || memcmp(got->shape, want->shape, want->rank * sizeof *want->shape) ||
        got->dtype != want->dtype) {
        complain(j, want->name, "another shape or type");
        return;
    }
    for (uint64_t i = 0; i < count(want); i++) {
        double far = fabs(value(got, i) - value(want, i)) / tolerance(j, kind, want, most > 0 ? most : 1, i);
        worst = far <= worst ? worst : isnan(far) ? INFINITY : far;
    }
    if (worst >= j->worst[slot])
        j->worst[slot] = worst, j->worst_name[slot] = want->name;
    if (worst > 1) {
        snprintf(text, sizeof text, "%.3g times its tolerance", worst);
        complain(j, want->name, text);
    }
}

/* The case's optimizer.lr, number of steps, and whether its optimizer divides by what it has seen of the
 * gradient. */
static int read_case(struct judge *j)
{
    const char *text = tn_safetensors_meta(j->want, "case");
    json_t *root = text ? json_loads(text, 0, NULL) : NULL, *ini = json_object_get(root, "ini");
    const char *optimizer = json_string_value(json_object_get(ini, "optimizer.name"));

    j->lr = json_number_value(json_object_get(ini, "optimizer.lr"));
    j->steps = json_number_value(json_object_get(root, "steps"));
    j->adaptive = optimizer && strcmp(optimizer, "sgd");
    int fine = optimizer && j->steps > 0;
    json_decref(root);
    return fine;
}

static int judge(struct judge *j, int quiet)
{
    static const char *const shown[] = {"loss, gnorm", "logits", "grad", "after"};
    unsigned compared = 0;

    if (!read_case(j))
        return puts("the case has no metadata \"case\""), 2;
    for (uint64_t i = 0; i < tn_safetensors_count(j->want); i++)
        if (kind_of(tn_safetensors_at(j->want, i)->name) == 3)
            j->largest_grad = fmax(j->largest_grad, largest(tn_safetensors_at(j->want, i)));
    for (uint64_t i = 0; i < tn_safetensors_count(j->want); i++) {
        const struct tn_tensor *want = tn_safetensors_at(j->want, i);
        int kind = kind_of(want->name);
        if (kind >= 0)
            compare_one(j, kind, want), compared++;
    }
    for (int s = 0; s < 4 && !quiet; s++)
        printf("%-12s worst %9.3g of its tolerance (%s)\n", shown[s], j->worst[s],
               j->worst_name[s] ? j->worst_name[s] : "none");
    return j->bad || !compared;
}

static int compare_files(const char *want, const char *got, int quiet)
{
    struct tn_safetensors *a = NULL, *b = NULL;
    int rc = 2;

    if (tn_safetensors_open(want, &a) < 0 || tn_safetensors_open(got, &b) < 0)
        puts(tn_error_text());
    else
        rc = judge(&(struct judge){.want = a, .got = b}, quiet);
    tn_safetensors_close(a);
    tn_safetensors_close(b);
    return rc;
}

/* --- the proof */

/* A case of two elements a tensor. The change is added to one element of a kind; drop leaves the kind out. */
static void put_case(const char *path, int kind, int element, double change, int drop, const char *optimizer)
{
    static const double sound[5] = {3, 2, 4, 0.5, 1};
    static const char *const name[5] = {"loss", "gnorm", "logits", "grad.w", "after.w"};
    const int64_t shape[] = {2};
    struct tn_safetensors_writer *w;
    char meta[120];
    int failed = 0;

    snprintf(meta, sizeof meta,
             "{\"ini\": {\"optimizer.name\": \"%s\", \"optimizer.lr\": 0.01}, \"steps\": 2}", optimizer);
    failed |= tn_safetensors_create(path, &w) < 0 || tn_safetensors_add_meta(w, "case", meta) < 0;
    for (int k = 0; k < 5; k++)
        if (k != kind || !drop)
            failed |= tn_safetensors_declare(w, name[k], k < 2 ? TN_F64 : TN_F32, 1, shape) < 0;
    failed |= tn_safetensors_begin(w) < 0;
    for (int k = 0; k < 5; k++) {
        double d[2] = {sound[k], sound[k] / 2};
        if (k == kind)
            d[element] += change;
        float f[2] = {(float)d[0], (float)d[1]};
        if (k != kind || !drop)
            failed |= tn_safetensors_write(w, k < 2 ? (const void *)d : f, k < 2 ? sizeof d : sizeof f) < 0;
    }
    failed |= tn_safetensors_commit(w, NULL, NULL) < 0;
    if (failed) {
        puts(tn_error_text());
        exit(1);
    }
}

static int prove(void)
{
    static const struct {
        int kind;
        double change;
        int drop, rc;
        const char *optimizer;
        int element;
    } trial[] = {
        {-1, 0, 0, 0, "adamw", 0}, {0, 5e-6, 0, 0, "adamw", 0}, {0, 7e-6, 0, 1, "adamw", 0},
        {1, 5e-6, 0, 1, "adamw", 0}, {2, 3e-5, 0, 0, "adamw", 0}, {2, 6e-5, 0, 1, "adamw", 0},
        {3, 4e-6, 0, 0, "adamw", 0}, {3, 8e-6, 0, 1, "adamw", 0}, {4, 8e-6, 0, 0, "adamw", 0},
        {4, 2e-5, 0, 1, "adamw", 0}, {4, 2e-5, 0, 1, "sgd", 0}, {2, NAN, 0, 1, "adamw", 0},
        {0, 0, 1, 1, "adamw", 0}, {3, 0, 1, 1, "adamw", 0}, {4, 0, 1, 1, "sgd", 0},
        {1, 8e-6, 0, 0, "adamw", 1}, {1, 2e-5, 0, 1, "adamw", 1}, {1, 8e-6, 0, 1, "sgd", 1},
    };
    char dir[] = "/tmp/tenon-compare-XXXXXX", want[64], got[64];
    unsigned wrong = 0;

    if (!mkdtemp(dir))
        return 1;
    snprintf(want, sizeof want, "%s/want", dir);
    snprintf(got, sizeof got, "%s/got", dir);
    for (size_t i = 0; i < sizeof trial / sizeof *trial; i++) {
        put_case(want, -1, 0, 0, 0, trial[i].optimizer);
        put_case(got, trial[i].kind, trial[i].element, trial[i].change, trial[i].drop, trial[i].optimizer);
        if (compare_files(want, got, 1) != trial[i].rc)
            wrong++, printf("trial %zu is judged wrongly\n", i);
    }
    tn_path_remove(dir);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return prove();
    if (argc != 3)
        return fputs("usage: compare CASE.safetensors OUT.safetensors\n", stderr), 2;
    return compare_files(argv[1], argv[2], 0);
}
