/* test_ref.c - the oracle itself: every operation of plugin ref against its formula written out a second
 * time, gradients against differences, and numbers that can be checked by hand. Skipped if ref was not built.
 */
#include <stdlib.h>
#include "check_ref.h"

const struct tn_kernels *ref;

#ifdef __SANITIZE_ADDRESS__                      /* asking for too much is an answer, not the end */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

int main(void)
{
    const struct tn_plugin *p = tn_bench_plugin("ref");
    Suite *s = suite_create("ref");
    SRunner *r;
    int failed;

    if (!p) {
        printf("skipped: plugin ref was not built\n");
        return 77;
    }
    ref = tn_bench_interface(p, TN_KERNELS_ID);
    suite_add_tcase(s, tn_test_nest());
    suite_add_tcase(s, tn_test_expr());
    suite_add_tcase(s, tn_test_shaped());
    suite_add_tcase(s, tn_test_gradient());
    suite_add_tcase(s, tn_test_device());
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
