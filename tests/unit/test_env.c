/* test_env.c - the plugin env: places from variables as launchers set them, and sentences for the others. */
#include <tenon/bootstrap.h>

#include "plugin_file.h"

static const struct tn_bootstrap *env;
static struct tn_place place;

static void setup(void)
{
    env = plugin_file("env", TN_BOOTSTRAP_ID);
}

/* "A=1 B=2": these and no others. */
static void variables(const char *list)
{
    char copy[1024];

    clearenv();
    snprintf(copy, sizeof copy, "%s", list);
    for (char *save, *one = strtok_r(copy, " ", &save); one; one = strtok_r(NULL, " ", &save)) {
        char *equal = strchr(one, '=');
        *equal = 0;
        setenv(one, equal + 1, 1);
    }
}

static void located(const char *list, uint32_t want_score)
{
    uint32_t score = 0;
    char why[128];

    variables(list);
    memset(&place, 0xee, sizeof place);
    place.struct_size = sizeof place;
    ck_assert_msg(env->locate(&place) == TN_OK, "%s: %s", list, tn_error_text());
    ck_assert_int_eq(env->probe(&score, why, sizeof why), TN_OK);
    ck_assert_uint_eq(score, want_score);
    ck_assert_ptr_nonnull(memchr(place.address, 0, sizeof place.address));
    ck_assert_ptr_nonnull(memchr(place.job, 0, sizeof place.job));
}

static void is_place(uint32_t rank, uint32_t size, uint32_t local_rank, uint32_t local_size, uint32_t node, uint32_t nodes)
{
    ck_assert_uint_eq(place.rank, rank);
    ck_assert_uint_eq(place.size, size);
    ck_assert_uint_eq(place.local_rank, local_rank);
    ck_assert_uint_eq(place.local_size, local_size);
    ck_assert_uint_eq(place.node, node);
    ck_assert_uint_eq(place.nodes, nodes);
}

/* An error that names the variable, from probe as well. */
static void refused(const char *list, const char *variable)
{
    uint32_t score = 0;
    char why[128];

    variables(list);
    place = (struct tn_place){.struct_size = sizeof place};
    ck_assert_msg(env->locate(&place) == TN_ERR_CONFIG, "accepted: %s", list);
    ck_assert_msg(strstr(tn_error_text(), variable) != NULL, "%s: \"%s\" lacks %s", list, tn_error_text(), variable);
    ck_assert_int_lt(env->probe(&score, why, sizeof why), 0);
}

/* No place to be had here, but nothing wrong with it: score 0, and a reason. */
static void not_mine(const char *list, const char *variable)
{
    uint32_t score = 9;
    char why[256];

    variables(list);
    place = (struct tn_place){.struct_size = sizeof place};
    ck_assert_int_eq(env->locate(&place), TN_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), variable));
    ck_assert_int_eq(env->probe(&score, why, sizeof why), TN_OK);
    ck_assert_uint_eq(score, 0);
    ck_assert_ptr_nonnull(strstr(why, variable));
}

START_TEST(alone)
{
    located("HOME=/root", 1);
    is_place(0, 1, 0, 1, 0, 1);
    ck_assert_str_eq(place.address, "");
    located("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", 1);      /* a batch script, no step */
    is_place(0, 1, 0, 1, 0, 1);
    located("RANK=", 1);
    located("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", 1);
    not_mine("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE");
    not_mine("PMI_SIZE=2 PMI_RANK=1", "PMI_SIZE");
}
END_TEST

#define ADDRESS " MASTER_ADDR=n1 MASTER_PORT=29500"

START_TEST(torchrun)
{
    located("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x "
            "TORCHELASTIC_RESTART_COUNT=3 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500", 80);
    is_place(5, 8, 1, 4, 1, 2);
    ck_assert_str_eq(place.address, "10.0.0.1");
    ck_assert_uint_eq(place.port, 29500);
    ck_assert_str_eq(place.job, "torchrun-x-3");
    ck_assert_uint_eq(place.ports, 16);          /* the agent may own the first */
    located("RANK=3 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", 80);
    is_place(3, 4, 3, 4, 0, 1);                  /* by hand, on one host */
    located("RANK=3 WORLD_SIZE=4" ADDRESS, 80);
    is_place(3, 4, 0, 1, 3, 4);                  /* by hand, a host each */
    located("RANK=0 WORLD_SIZE=1", 80);
    is_place(0, 1, 0, 1, 0, 1);
    located("RANK=5 WORLD_SIZE=7 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4" ADDRESS, 80);
    is_place(5, 7, 1, 4, 1, 2);
    located("RANK=0 WORLD_SIZE=2 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2" ADDRESS, 80);
    is_place(0, 2, 0, 1, 0, 2);                  /* srun started torchrun */
}
END_TEST

START_TEST(torchrun_wrong)
{
    refused("RANK=1", "WORLD_SIZE");
    refused("WORLD_SIZE=2" ADDRESS, "RANK");
    refused("RANK=2 WORLD_SIZE=2" ADDRESS, "RANK is 2");
    refused("RANK=-1 WORLD_SIZE=2" ADDRESS, "RANK is \"-1\"");
    refused("RANK=1x WORLD_SIZE=2" ADDRESS, "RANK");
    refused("RANK=0 WORLD_SIZE=0" ADDRESS, "WORLD_SIZE");
    refused("RANK=0 WORLD_SIZE=99999999999999999999" ADDRESS, "WORLD_SIZE");
    refused("RANK=0 WORLD_SIZE=2", "MASTER_ADDR");
    refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n", "MASTER_PORT");
    refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n MASTER_PORT=65536", "MASTER_PORT");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0" ADDRESS, "LOCAL_WORLD_SIZE");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2" ADDRESS, "LOCAL_RANK");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2" ADDRESS, "LOCAL_RANK");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3" ADDRESS, "LOCAL_WORLD_SIZE");
    refused("RANK=0 WORLD_SIZE=2 GROUP_RANK=2" ADDRESS, "GROUP_RANK");
}
END_TEST

#define STEP "SLURM_JOB_ID=41 SLURM_STEP_ID=2 "

START_TEST(slurm)
{
    located(STEP "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_NODEID=1 "
                 "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[1-2]", 40);
    is_place(3, 4, 0, 1, 1, 2);
    ck_assert_str_eq(place.address, "n1");
    ck_assert_uint_ge(place.port, 12000);
    ck_assert_uint_lt(place.port, 30000);
    ck_assert_str_eq(place.job, "slurm-41.2-0");
    uint32_t port = place.port;
    located(STEP "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_NODEID=0 "
                 "SLURM_STEP_NUM_NODES=4 SLURM_STEP_NODELIST=rack[01,03-05]n[7-9]x,m7", 40);
    is_place(0, 7, 0, 2, 0, 4);
    ck_assert_str_eq(place.address, "rack01n7x");
    ck_assert_uint_eq(place.port, port);         /* the same on all ranks */
    located(STEP "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=0 "
                 "SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=gpu-1.example.org SLURM_RESTART_COUNT=1", 40);
    ck_assert_str_eq(place.address, "gpu-1.example.org");
    ck_assert_str_eq(place.job, "slurm-41.2-1");
}
END_TEST

static void refused_step(const char *procid, const char *tasks, const char *nodeid, const char *list, const char *variable)
{
    char text[512];

    snprintf(text, sizeof text, STEP "SLURM_PROCID=%s SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=%s "
             "SLURM_NODEID=%s SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=%s", procid, tasks, nodeid, list);
    refused(text, variable);
}

START_TEST(slurm_wrong)
{
    refused_step("4", "3,1", "0", "n[1-2]", "SLURM_PROCID");
    refused_step("0", "3,2", "0", "n[1-2]", "SLURM_STEP_TASKS_PER_NODE");
    refused_step("0", "4", "0", "n[1-2]", "SLURM_STEP_TASKS_PER_NODE");
    refused_step("0", "2(x2", "0", "n[1-2]", "SLURM_STEP_TASKS_PER_NODE");
    refused_step("0", "2(x99999999)", "0", "n[1-2]", "SLURM_STEP_TASKS_PER_NODE");
    refused_step("0", "3,1,", "0", "n[1-2]", "SLURM_STEP_TASKS_PER_NODE");
    refused_step("0", "3;1", "0", "n[1-2]", "SLURM_STEP_TASKS_PER_NODE");
    refused_step("0", "3,1", "2", "n[1-2]", "SLURM_NODEID");
    refused_step("0", "3,1", "0", "n[1-2", "SLURM_STEP_NODELIST");
    refused_step("0", "3,1", "0", "n]1-2[", "SLURM_STEP_NODELIST");
    refused_step("0", "3,1", "0", ",n1", "SLURM_STEP_NODELIST");
    refused_step("0", "3,1", "0", "n;reboot", "SLURM_STEP_NODELIST");
    refused("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES");
}
END_TEST

START_TEST(host_that_is_older)
{
    place.struct_size = 8;
    ck_assert_int_lt(env->locate(&place), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("env");
    TCase *c = tcase_create("all");

    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, alone);
    tcase_add_test(c, torchrun);
    tcase_add_test(c, torchrun_wrong);
    tcase_add_test(c, slurm);
    tcase_add_test(c, slurm_wrong);
    tcase_add_test(c, host_that_is_older);
    suite_add_tcase(s, c);
    return plugin_suite_run(s);
}
