/* dir - rank and size from two variables, the address of rank 0 through a file in a directory that all share.
 *
 * The file may be there already, from an older run: whoever reads it finds that nobody answers there, and
 * reads it again, until rank 0 of this run has replaced it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <tenon/bootstrap.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 10000000u

static char address_file[4096]; /* written by rank 0; "" not yet */

static const char *text_of(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

static tn_status number_of(const char *name, uint64_t low, uint64_t high, uint32_t *out)
{
    const char *text = text_of(name);
    uint64_t n = 0;

    *out = 0;
    if (!text)
        return tn_error(TN_ERR_CONFIG, "dir: TENON_DIR is set and %s is not", name);
    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 10)
        return tn_error(TN_ERR_CONFIG, "dir: %s is \"%.40s\", which is no number", name, text);
    for (const char *c = text; *c; c++)
        n = n * 10 + (uint64_t)(*c - '0');
    if (n < low || n > high)
        return tn_error(TN_ERR_CONFIG, "dir: %s is %s, it must be from %llu to %llu", name, text,
                        (unsigned long long)low, (unsigned long long)high);
    *out = (uint32_t)n;
    return TN_OK;
}

static tn_status job_of(const char **out)
{
    const char *job = text_of("TENON_JOB");

    *out = job ? job : "0";
    if (strlen(*out) > 40 ||
        strspn(*out, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(*out))
        return tn_error(TN_ERR_CONFIG,
                        "dir: TENON_JOB is \"%.60s\"; it is a name of at most 40 letters, digits, -, _ and .",
                        *out);
    return TN_OK;
}

static tn_status place(struct tn_place *out)
{
    const char *job, *dir = text_of("TENON_DIR");
    tn_status s;

    memset((char *)out + sizeof out->struct_size, 0, sizeof *out - sizeof out->struct_size);
    if (!dir)
        return tn_error(TN_ERR_CONFIG, "dir: TENON_DIR is not set; it is the directory that all ranks share");
    if (*dir != '/' || strlen(dir) > sizeof address_file - 80)
        return tn_error(TN_ERR_CONFIG,
                        "dir: TENON_DIR is \"%.80s\", which is no absolute path that can be used", dir);
    if ((s = number_of("TENON_WORLD_SIZE", 1, MAX_RANKS, &out->size)) < 0 ||
        (s = number_of("TENON_RANK", 0, out->size - 1, &out->rank)) < 0 || (s = job_of(&job)) < 0)
        return s;
    snprintf(out->job, sizeof out->job, "dir-%s", job);
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    struct tn_place p = {.struct_size = sizeof p};
    tn_status s;

    *score = 0;
    if (!text_of("TENON_DIR")) {
        snprintf(why, why_size, "TENON_DIR is not set");
        return TN_OK;
    }
    if ((s = place(&p)) < 0)
        return s;
    *score = 70;
    snprintf(why, why_size, "TENON_DIR: %u ranks", p.size);
    return TN_OK;
}

static tn_status locate(struct tn_place *out)
{
    if (out->struct_size < sizeof *out)
        return tn_error(TN_ERR, "dir: struct tn_place has %u bytes, %zu are needed", out->struct_size,
                        sizeof *out);
    return place(out);
}

/* --- the file */
static void file_name(char *out, size_t room)
{
    const char *job = text_of("TENON_JOB");

    snprintf(out, room, "%s/tenon-%s.address", text_of("TENON_DIR"), job ? job : "0");
}

static tn_status give(const char *address)
{
    char path[sizeof address_file], fresh[sizeof path + 40];
    size_t n = strlen(address);
    int fd, e = 0;

    file_name(path, sizeof path);
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return tn_error(TN_ERR_IO, "dir: %.200s cannot be written: %s", fresh, strerror(errno));
    if (write(fd, address, n) != (ssize_t)n || fsync(fd))
        e = errno ? errno : ENOSPC;
    if (close(fd) && !e)
        e = errno;
    if (!e && rename(fresh, path))
        e = errno;
    if (e) {
        unlink(fresh);
        return tn_error(TN_ERR_IO, "dir: %.200s cannot be written: %s", path, strerror(e));
    }
    snprintf(address_file, sizeof address_file, "%s", path);
    return TN_OK;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tn_status get(char *out, uint64_t out_size, double seconds)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    double until = now() + seconds;
    char path[sizeof address_file];

    file_name(path, sizeof path);
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t k = fd < 0 ? -1 : read(fd, out, out_size - 1);

        if (fd < 0 && errno != ENOENT)
            return tn_error(TN_ERR_IO, "dir: %.200s cannot be read: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        if (k > 0) {
            out[k] = 0;
            return TN_OK;
        }
        if (now() >= until)
            return tn_error(TN_ERR_TIMEOUT, "dir: rank 0 did not write %.200s within %g s", path, seconds);
        nanosleep(&pause, NULL);
    }
}

static tn_status publish(const char *address, char *out, uint64_t out_size, double seconds)
{
    struct tn_place p = {.struct_size = sizeof p};
    tn_status s = place(&p);

    if (s < 0)
        return s;
    return p.rank ? get(out, out_size, seconds) : give(address);
}

static void leave(void)
{
    if (*address_file)
        unlink(address_file);
    *address_file = 0;
}

static const struct tn_bootstrap dir = {
    .struct_size = sizeof dir,
    .probe = probe,
    .locate = locate,
    .publish = publish,
    .leave = leave,
};

TN_PLUGIN("dir", "1.0", "rank from TENON_RANK, address through a shared directory", TN_BOOTSTRAP_ID, &dir);
