/* cpus.c - how many CPUs may this process use?
 *
 * In a container all CPUs of the machine are visible, while a quota of a control group allows the time of a
 * few: more threads than that only take turns in being stopped. Groups nest, so the quota of every group up
 * to the root counts; both versions of the interface are read, since both are in use. A quota of one and a
 * half gives two threads. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/pool.h"

static uint32_t affinity_cpus(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 1)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

/* The quota that a group's folder states in CPUs, 0 if none: cpu.max holds "quota period" or "max period",
 * the older pair of files one number each, -1 for none. */
static double folder_quota(const char *folder)
{
    char path[4352];
    double quota = 0, period = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/cpu.max", folder);
    f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%lf %lf", &quota, &period) != 2)
            quota = 0;
        fclose(f);
        return quota > 0 && period > 0 ? quota / period : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%lf", &quota) != 1)
        quota = 0;
    fclose(f);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%lf", &period) != 1)
        period = 0;
    fclose(f);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The least quota of a group and all above it; root is where the hierarchy is mounted. */
static double path_quota(const char *root, const char *group, double least)
{
    char folder[4224];
    size_t top = strlen(root);

    snprintf(folder, sizeof folder, "%s%s", root, group);
    for (;;) {
        double quota = folder_quota(folder);
        char *slash = strrchr(folder, '/');
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
        if (!slash || (size_t)(slash - folder) < top)
            return least;
        *slash = 0;
    }
}

/* Lines of /proc/self/cgroup are "number:controllers:path"; no controllers is version 2. */
static double group_quota(void)
{
    char line[4096];
    double least = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        controllers++;
        group[strcspn(group, "\n")] = 0;
        if (!*controllers) {
            least = path_quota("/sys/fs/cgroup", group, least);
        } else if (strstr(controllers, "cpu") && !strstr(controllers, "cpuset")) {
            least = path_quota("/sys/fs/cgroup/cpu", group, least);
        }
    }
    fclose(f);
    return least;
}

uint32_t tn_cpus(void)
{
    uint32_t cpus = affinity_cpus();
    double quota = group_quota();

    if (quota > 0 && quota < cpus) {
        cpus = (uint32_t)quota;
        cpus += cpus < quota;
    }
    return cpus;
}
