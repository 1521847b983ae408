// unique - a static of a template, which the loader makes one for the whole process
#include <tenon/bootstrap.h>

template <class T> struct __attribute__((visibility("default"))) shared_state {
    static int value;
};
template <class T> int shared_state<T>::value = 0;

static tn_status probe(uint32_t *score, char *, uint64_t)
{
    *score = 1 + static_cast<uint32_t>(shared_state<int>::value++);
    return TN_OK;
}
static tn_status locate(struct tn_place *)
{
    return TN_OK;
}
static const struct tn_bootstrap table = [] {
    struct tn_bootstrap t = {};
    t.struct_size = sizeof t, t.probe = probe, t.locate = locate;
    return t;
}();
TN_PLUGIN("unique", "1", "shares its state", TN_BOOTSTRAP_ID, &table);
