// copies - a kernel plugin in C++: copies of fp32 with any strides, by one loop after another. What its own code throws
// becomes an error of the plugin; nothing leaves it.
#include <cmath>
#include <memory>
#include <new>
#include <vector>
#include <tenon/kernels.h>

namespace {

struct copies {
    std::vector<tn_loop> loops;

    void run(const float *from, float *to, std::size_t depth) const
    {
        if (depth == loops.size()) {
            *to = *from;
            return;
        }
        for (int64_t i = 0; i < loops[depth].size; i++)
            run(from + i * loops[depth].stride[0], to + i * loops[depth].stride[1], depth + 1);
    }
};

tn_status launch(void *state, const tn_launch *l)
{
    static_cast<const copies *>(state)->run(static_cast<const float *>(l->buffer[0]), static_cast<float *>(l->buffer[1]), 0);
    return TN_OK;
}

void release(void *state)
{
    delete static_cast<copies *>(state);
}

tn_status prepare(const tn_problem *p, tn_kernel *out)
try {
    if (p->in[0].dtype != TN_F32 || p->out[0].dtype != TN_F32 || p->accumulate)
        return TN_DECLINED;
    auto c = std::make_unique<copies>();
    c->loops.assign(p->loop, p->loop + p->n_loop);
    if (c->loops.size() > 64)
        throw std::bad_alloc();
    out->state = c.release(), out->launch = launch, out->release = release;
    return TN_OK;
} catch (const std::bad_alloc &) {
    return tn_error(TN_ERR_MEMORY, "copies: no memory for %u loops", p->n_loop);
}

tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "in C++");
    return TN_OK;
}

const char *const ops[] = {"copy", nullptr};
const tn_kernels kernels = {sizeof kernels, 0, "cpu", ops, probe, prepare};

} // namespace

TN_PLUGIN("copies", "1.0", "copies, in C++", TN_KERNELS_ID, &kernels);
