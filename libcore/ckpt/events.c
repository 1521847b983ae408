/* events.c - see events.h.
 *
 * Record: length uint64, its checksum, data, its checksum; all little-endian. The checksum is CRC-32C, turned and added to
 * (so that a checksum of data that hold checksums is no trouble). Of Event only these fields are used:
 *
 *   Event    1 double wall_time, 2 int64 step, 3 string file_version (first record), 5 Summary
 *   Summary  1 Value, repeated      Value  1 string tag, 2 float simple_value */
#include "ckpt/events.h"

#include "base/file.h"
#include "base/status.h"
#include "data/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define HEAD 12                                  /* length and its checksum */
#define TAIL 4
#define VALUE_MOST 120                           /* bytes of a Value with its frame */
#define DATA_MOST (64 + TN_EVENTS_MOST * VALUE_MOST)

enum { VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 5 };             /* how a field is written */

struct tn_events {
    char *path;
    int fd;
};

/* --- bytes */

struct writer {
    uint8_t *at;
};

static void put_fixed(struct writer *w, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *w->at++ = (uint8_t)(x >> 8 * i);
}

static uint64_t get_fixed(const uint8_t *p, int bytes)
{
    uint64_t x = 0;

    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static void put_varint(struct writer *w, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        *w->at++ = (uint8_t)(x | 128);
    *w->at++ = (uint8_t)x;
}

static void put_field(struct writer *w, uint32_t number, int kind)
{
    put_varint(w, number << 3 | (uint32_t)kind);
}

static void put_bytes(struct writer *w, uint32_t number, const void *data, size_t n)
{
    put_field(w, number, BYTES);
    put_varint(w, n);
    memcpy(w->at, data, n);
    w->at += n;
}

static void put_double(struct writer *w, uint32_t number, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    put_field(w, number, EIGHT_BYTES);
    put_fixed(w, bits, 8);
}

static void put_float(struct writer *w, uint32_t number, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    put_field(w, number, FOUR_BYTES);
    put_fixed(w, bits, 4);
}

/* --- records */

static uint32_t checksum(const uint8_t *p, uint64_t n)
{
    uint32_t c = UINT32_MAX;

    for (uint64_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int b = 0; b < 8; b++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* Whole bytes of the record that begins at p; 0: it is cut short, or none. */
static uint64_t record_bytes(const uint8_t *p, uint64_t room)
{
    uint64_t n = room < HEAD ? 0 : get_fixed(p, 8);

    if (room < HEAD || get_fixed(p + 8, 4) != checksum(p, 8) || n > room - HEAD || room - HEAD - n < TAIL)
        return 0;
    return get_fixed(p + HEAD + n, 4) == checksum(p + HEAD, n) ? HEAD + n + TAIL : 0;
}

/* The step of an Event as it is written here: after the time. 0 where there is none, as in the first record. */
static int64_t step_of(const uint8_t *data, uint64_t n)
{
    uint64_t x = 0;

    if (n < 11 || data[9] != (2 << 3 | VARINT))
        return 0;
    for (uint64_t i = 10, shift = 0; i < n && shift < 64; i++, shift += 7) {
        x |= (uint64_t)(data[i] & 127) << shift;
        if (data[i] < 128)
            break;
    }
    return (int64_t)x;
}

static tn_status append(struct tn_events *e, const uint8_t *data, uint64_t n)
{
    uint8_t record[HEAD + DATA_MOST + TAIL];
    struct writer w = {record};
    off_t before = lseek(e->fd, 0, SEEK_END);
    tn_status status;

    put_fixed(&w, n, 8);
    put_fixed(&w, checksum(record, 8), 4);
    memcpy(w.at, data, n);
    w.at += n;
    put_fixed(&w, checksum(data, n), 4);
    status = tn_file_write_all(e->fd, record, (size_t)(w.at - record), e->path);
    if (status < 0 && (before < 0 || ftruncate(e->fd, before)))
        tn_log(TN_LOG_WARNING, "%s ends with a record that is cut short; the next start repairs it", e->path);
    return status;
}

static void put_time(struct writer *w)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    put_double(w, 1, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
}

static tn_status write_version(struct tn_events *e)
{
    uint8_t data[DATA_MOST];
    struct writer w = {data};

    put_time(&w);
    put_bytes(&w, 3, "brain.Event:2", 13);
    return append(e, data, (uint64_t)(w.at - data));
}

tn_status tn_events_write(struct tn_events *e, int64_t step, const struct tn_event_value *v, uint32_t n)
{
    uint8_t data[DATA_MOST], summary[TN_EVENTS_MOST * VALUE_MOST], value[VALUE_MOST];
    struct writer w = {data}, s = {summary};

    for (uint32_t i = 0; i < n && i < TN_EVENTS_MOST; i++) {
        struct writer one = {value};

        put_bytes(&one, 1, v[i].tag, strnlen(v[i].tag, 100));
        put_float(&one, 2, (float)v[i].x);
        put_bytes(&s, 1, value, (size_t)(one.at - value));
    }
    put_time(&w);
    put_field(&w, 2, VARINT);
    put_varint(&w, (uint64_t)step);
    put_bytes(&w, 5, summary, (size_t)(s.at - summary));
    return append(e, data, (uint64_t)(w.at - data));
}

/* --- the file */

/* Steps only grow, so what is to go is the end. */
static tn_status trim(struct tn_events *e, int64_t last_step)
{
    struct tn_mapping m;
    uint64_t at = 0, n;
    tn_status status = tn_mapping_open(e->path, &m);

    if (status < 0)
        return status;
    while (last_step >= 0 && at < m.bytes && (n = record_bytes(m.data + at, m.bytes - at)) > 0 &&
           step_of(m.data + at + HEAD, n - HEAD - TAIL) <= last_step)
        at += n;
    n = m.bytes - at;
    tn_mapping_close(&m);
    if (n == 0)
        return TN_OK;
    if (ftruncate(e->fd, (off_t)at))
        return tn_error(TN_ERR_IO, "cannot cut %s: %s", e->path, strerror(errno));
    if (last_step < 0)
        tn_log(TN_LOG_INFO, "%s: dropped %" PRIu64 " bytes of an earlier run", e->path, n);
    else
        tn_log(TN_LOG_INFO, "%s: dropped %" PRIu64 " bytes that are beyond step %" PRId64 " or cut short", e->path, n, last_step);
    return TN_OK;
}

tn_status tn_events_open(const char *path, int64_t last_step, struct tn_events **out)
{
    struct tn_events *e = calloc(1, sizeof *e);
    tn_status status =
        e && (e->path = strdup(path)) ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for %s", path);

    *out = NULL;
    if (e)
        e->fd = -1;
    if (status == TN_OK && (e->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
        status = tn_error(TN_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (status == TN_OK)
        status = trim(e, last_step);
    if (status == TN_OK && lseek(e->fd, 0, SEEK_END) == 0)
        status = write_version(e);
    if (status < 0)
        tn_events_close(e);
    else
        *out = e;
    return status;
}

void tn_events_close(struct tn_events *e)
{
    if (!e)
        return;
    if (e->fd >= 0)
        close(e->fd);
    free(e->path);
    free(e);
}
