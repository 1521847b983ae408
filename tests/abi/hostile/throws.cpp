// throws - an exception leaves its probe
#include <stdexcept>
#include <tenon/bootstrap.h>

static tn_status probe(uint32_t *, char *, uint64_t)
{
    throw std::runtime_error("no hardware");
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
TN_PLUGIN("throws", "1", "throws when asked", TN_BOOTSTRAP_ID, &table);
