/* tcp.cpp - streams over pairs of Gloo's TCP transport.
 *
 * A pair carries frames, numbered in each direction; a number is the slot, so a frame lands in the buffer
 * that was posted for it and a sender never waits for the receiver's permission. Buffers are posted at full
 * size and frames are as long as they say, so sizes can never disagree, which Gloo answers by ending the
 * process. A frame of data belongs to a stream; the reader returns what it has read as a credit, in any frame
 * that goes back, so a sent buffer whose credit came is known to have left.
 *
 * Gloo names a failed peer by address, and a wait that is too long closes every pair. So there is one thread
 * for each pair, which knows its rank and waits without limit; limits are kept by those who wait for results.
 */
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <sched.h>
#include <signal.h>
#include <thread>
#include <vector>

#include "tcp.h"

namespace
{

using gloo::transport::UnboundBuffer;

constexpr uint32_t window = 8;                   /* frames of a stream that may be unread */
constexpr uint32_t spare = 4;                    /* frames posted beyond, for credits and control */
constexpr uint64_t slots = uint64_t(0x40) << 56; /* clear of those that Gloo's collectives use */
constexpr size_t payload = 512 << 10;

enum : uint32_t { data_frame = 0x100, credit_frame };

struct head { /* one line, so that what follows is aligned */
    uint32_t bytes, kind;
    uint64_t tag, read; /* frames of the stream that the sender has read */
    uint64_t zero[5];
};
static_assert(sizeof(head) == 64, "one line");

struct frame {
    std::unique_ptr<uint8_t[]> memory; /* not touched before it is used */
    std::unique_ptr<UnboundBuffer> buffer;
    bool sent = false;

    frame(gloo::transport::Context &c, size_t bytes) : memory(new uint8_t[2 * sizeof(head) + bytes])
    {
        buffer = c.createUnboundBuffer(line(), sizeof(head) + bytes);
    }
    uint8_t *line()
    {
        return reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63));
    }
    head &top()
    {
        return *reinterpret_cast<head *>(line());
    }
    uint8_t *body()
    {
        return line() + sizeof(head);
    }
};

} // namespace

struct tn_pair;

struct tn_link_stream {
    tn_pair *link;
    uint64_t tag;
    std::vector<std::unique_ptr<frame>> out;     /* window of them */
    std::vector<std::unique_ptr<frame>> credits; /* by turns: the one before the last has surely arrived */
    uint64_t sent = 0, filled = 0;               /* frames; bytes in the next one */
    std::atomic<uint64_t> theirs{0};             /* frames of ours that they have read */
    std::mutex lock;
    std::deque<std::unique_ptr<frame>> in; /* arrived */
    uint64_t read = 0, told = 0, at = 0;   /* frames read, as they know; bytes of the first one */
    uint64_t turns = 0;
};

struct tn_pair {
    tn_link *tcp = nullptr;
    uint32_t peer = 0;
    std::mutex lock; /* posted, streams, numbers of frames */
    std::deque<std::unique_ptr<frame>> posted;
    std::vector<tn_link_stream *> streams;
    std::vector<std::unique_ptr<frame>> said; /* control: few, kept to the end */
    uint64_t to_post = 0, to_send = 0;
    std::atomic<bool> lost{false}, connected{false};
    std::thread thread;
};

struct tn_link {
    uint32_t rank = 0, size = 0;
    tn_tcp_user user{};
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::transport::Context> context;
    std::vector<std::unique_ptr<tn_pair>> links;
    std::atomic<bool> stopping{false};
};

namespace
{

void lose(tn_pair *l)
{
    if (!l->lost.exchange(true) && !l->tcp->stopping)
        l->tcp->user.lost(l->tcp->user.arg, l->peer);
}

/* Link's lock held. */
void post(tn_pair *l, std::unique_ptr<frame> f)
{
    f->buffer->recv(int(l->peer), slots | l->to_post++, 0, sizeof(head) + payload);
    l->posted.push_back(std::move(f));
}

void send(tn_pair *l, frame &f)
{
    try {
        std::lock_guard<std::mutex> guard(l->lock);
        f.sent = true;
        f.buffer->send(int(l->peer), slots | l->to_send++, 0, sizeof(head) + f.top().bytes);
    } catch (const std::exception &) {
        lose(l);
    }
}

tn_link_stream *find(tn_pair *l, uint64_t tag)
{
    for (auto *s : l->streams)
        if (s->tag == tag)
            return s;
    return nullptr;
}

/* Gives a frame that has arrived to whom it is for, and posts another one or the same again. */
void deliver(tn_pair *l, std::unique_ptr<frame> f)
{
    const head top = f->top();

    if (top.kind < data_frame) {
        l->tcp->user.control(l->tcp->user.arg, l->peer, top.kind, f->body(), top.bytes);
        std::lock_guard<std::mutex> guard(l->lock);
        post(l, std::move(f));
        return;
    }
    {
        std::lock_guard<std::mutex> guard(l->lock);
        tn_link_stream *s = find(l, top.tag);
        if (s) {
            s->theirs = top.read;
            std::lock_guard<std::mutex> inner(s->lock);
            if (top.kind == data_frame)
                s->in.push_back(std::move(f));
        }
        if (f)
            post(l, std::move(f));
    }
    l->tcp->user.arrived(l->tcp->user.arg);
}

void watch(tn_pair *l)
{
    try {
        while (!l->tcp->stopping) {
            std::unique_ptr<frame> f;
            UnboundBuffer *first;
            {
                std::lock_guard<std::mutex> guard(l->lock);
                first = l->posted.front()->buffer.get();
            }
            if (!first->waitRecv(nullptr, std::chrono::hours(1000)))
                continue;
            {
                std::lock_guard<std::mutex> guard(l->lock);
                f = std::move(l->posted.front());
                l->posted.pop_front();
            }
            if (f->top().bytes > payload)
                break;
            deliver(l, std::move(f));
        }
    } catch (const std::exception &) {
    }
    lose(l);
}

/* Threads made in f run on any processor and do not hasten each other: bound to one with the rest of the
 * process, Gloo's own thread takes milliseconds for every message. */
template <typename F> auto unbound(F f) -> decltype(f())
{
    cpu_set_t before, all;
    sched_param parameter{};
    const int policy = sched_getscheduler(0);
    const bool known = !sched_getaffinity(0, sizeof before, &before);
    sigset_t every, mask;

    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; i++)
        CPU_SET(i, &all);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &mask);
    if (known)
        sched_setaffinity(0, sizeof all, &all);
    if (policy == SCHED_OTHER)
        sched_setscheduler(0, SCHED_BATCH, &parameter);
    struct restore {
        int policy;
        bool known;
        cpu_set_t &before;
        sched_param &parameter;
        sigset_t &mask;
        ~restore()
        {
            if (policy == SCHED_OTHER)
                sched_setscheduler(0, policy, &parameter);
            if (known)
                sched_setaffinity(0, sizeof before, &before);
            pthread_sigmask(SIG_SETMASK, &mask, nullptr);
        }
    } end{policy, known, before, parameter, mask};
    return f();
}

/* Runs f; an exception becomes a status and a sentence. */
template <typename F> tn_status guarded(const char *what, uint32_t peer, F f)
{
    try {
        f();
        return TN_OK;
    } catch (const std::exception &e) {
        return tn_error(TN_ERR, "gloo: %s%.0u: %s", what, peer, e.what());
    } catch (...) {
        return tn_error(TN_ERR, "gloo: %s%.0u failed", what, peer);
    }
}

} // namespace

extern "C" tn_status tn_tcp_open(const char *address, uint32_t rank, uint32_t size, double seconds,
                                 const tn_tcp_user *user, tn_link **out)
{
    std::unique_ptr<tn_link> t;
    tn_status s = guarded("opening TCP", 0, [&] {
        gloo::transport::tcp::attr attr(address);
        /* Gloo waits five times its limit for a first connection. */
        const auto limit = std::chrono::milliseconds(int64_t((seconds > 0.05 ? seconds : 0.05) * 1000 / 5));

        t.reset(new tn_link);
        t->rank = rank;
        t->size = size;
        t->user = *user;
        t->device = unbound([&] { return gloo::transport::tcp::CreateDevice(attr); });
        t->context = t->device->createContext(int(rank), int(size));
        t->context->setTimeout(limit);
        t->links.resize(size);
    });
    *out = s < 0 ? nullptr : t.release();
    return s;
}

extern "C" tn_status tn_tcp_listen(tn_link *t, uint32_t peer, void *address, uint32_t *bytes)
{
    tn_status s = guarded("listening for rank ", peer, [&] {
        t->links[peer].reset(new tn_pair);
        t->links[peer]->tcp = t;
        t->links[peer]->peer = peer;
        auto b = t->context->createPair(int(peer))->address().bytes();
        *bytes = uint32_t(b.size());
        if (b.size() <= TN_TCP_ADDRESS)
            memcpy(address, b.data(), b.size());
    });
    return s < 0 || *bytes <= TN_TCP_ADDRESS ? s : tn_error(TN_ERR, "gloo: an address of %u bytes", *bytes);
}

extern "C" tn_status tn_tcp_connect(tn_link *t, uint32_t peer, const void *address, uint32_t bytes)
{
    tn_pair *l = t->links[peer].get();

    try {
        const char *a = static_cast<const char *>(address);
        t->context->getPair(int(peer))->connect(std::vector<char>(a, a + bytes));
        std::lock_guard<std::mutex> guard(l->lock);
        l->connected = true;
        for (uint32_t i = 0; i < spare + window * uint32_t(l->streams.size()); i++)
            post(l, std::unique_ptr<frame>(new frame(*t->context, payload)));
        unbound([&] { l->thread = std::thread(watch, l); });
        return TN_OK;
    } catch (const std::exception &e) {
        return tn_error(TN_ERR_TIMEOUT, "gloo: rank %u cannot connect to rank %u: %s", t->rank, peer,
                        e.what());
    }
}

extern "C" tn_status tn_link_stream_new(tn_link *t, uint32_t peer, uint64_t tag, tn_link_stream **out)
{
    std::unique_ptr<tn_link_stream> s;
    tn_status status = guarded("a stream to rank ", peer, [&] {
        tn_pair *l = t->links[peer].get();
        s.reset(new tn_link_stream);
        s->link = l;
        s->tag = tag;
        for (uint32_t i = 0; i < window; i++)
            s->out.emplace_back(new frame(*t->context, payload));
        for (uint32_t i = 0; i < 4; i++)
            s->credits.emplace_back(new frame(*t->context, 0));
        std::lock_guard<std::mutex> guard(l->lock);
        for (uint32_t i = 0; l->connected && i < window; i++)
            post(l, std::unique_ptr<frame>(new frame(*t->context, payload)));
        l->streams.push_back(s.get());
    });
    *out = status < 0 ? nullptr : s.release();
    return status;
}

extern "C" void tn_link_stream_free(tn_link_stream *s)
{
    {
        std::lock_guard<std::mutex> guard(s->link->lock);
        auto &all = s->link->streams;
        for (size_t i = 0; i < all.size(); i++)
            if (all[i] == s)
                all.erase(all.begin() + long(i));
    }
    delete s;
}

extern "C" uint8_t *tn_link_room(tn_link_stream *s, uint64_t *bytes)
{
    frame &f = *s->out[s->sent % window];

    *bytes = 0;
    if (s->sent - s->theirs >= window || s->link->lost)
        return nullptr;
    if (f.sent) { /* its credit came, so it has left: no wait */
        try {
            f.buffer->waitSend(nullptr, std::chrono::hours(1000));
        } catch (const std::exception &) {
            lose(s->link);
            return nullptr;
        }
        f.sent = false;
    }
    *bytes = payload - s->filled;
    return f.body() + s->filled;
}

extern "C" void tn_link_flush(tn_link_stream *s)
{
    frame &f = *s->out[s->sent % window];

    if (!s->filled)
        return;
    f.top() = head{uint32_t(s->filled), data_frame, s->tag, s->read, {}};
    s->told = s->read;
    s->filled = 0;
    s->sent++;
    send(s->link, f);
}

extern "C" void tn_link_wrote(tn_link_stream *s, uint64_t bytes)
{
    s->filled += bytes;
    if (s->filled == payload)
        tn_link_flush(s);
}

extern "C" uint8_t *tn_link_read(tn_link_stream *s, uint64_t *bytes)
{
    std::lock_guard<std::mutex> guard(s->lock);

    *bytes = 0;
    if (s->in.empty())
        return nullptr;
    *bytes = s->in.front()->top().bytes - s->at;
    return s->in.front()->body() + s->at;
}

extern "C" void tn_link_took(tn_link_stream *s, uint64_t bytes)
{
    std::unique_ptr<frame> f;

    {
        std::lock_guard<std::mutex> guard(s->lock);
        s->at += bytes;
        if (s->in.empty() || s->at < s->in.front()->top().bytes)
            return;
        f = std::move(s->in.front());
        s->in.pop_front();
        s->at = 0;
    }
    s->read++;
    try {
        std::lock_guard<std::mutex> guard(s->link->lock);
        post(s->link, std::move(f));
    } catch (const std::exception &) {
        lose(s->link);
        return;
    }
    if (s->read - s->told < window / 2)
        return;
    frame &c = *s->credits[s->turns++ % s->credits.size()];
    try {
        if (c.sent)
            c.buffer->waitSend(nullptr, std::chrono::hours(1000));
    } catch (const std::exception &) {
        lose(s->link);
        return;
    }
    c.top() = head{0, credit_frame, s->tag, s->read, {}};
    s->told = s->read;
    send(s->link, c);
}

extern "C" void tn_link_say(tn_link *t, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes)
{
    tn_pair *l = t->links[peer].get();

    if (!l || !l->connected || l->lost || bytes > TN_LINK_CONTROL)
        return;
    guarded("a message to rank ", peer, [&] {
        std::unique_ptr<frame> f(new frame(*t->context, bytes));
        f->top() = head{bytes, kind, 0, 0, {}};
        memcpy(f->body(), data, bytes);
        send(l, *f);
        std::lock_guard<std::mutex> guard(l->lock);
        l->said.push_back(std::move(f));
    });
}

/* Frames come in threads of their own. */
const int tn_link_polls = 0;

extern "C" void tn_link_poll(tn_link *)
{
}

extern "C" void tn_link_failed(void)
{
}

extern "C" void tn_link_stop(tn_link *t)
{
    t->stopping = true;
    for (auto &l : t->links) {
        if (!l)
            continue;
        {
            std::lock_guard<std::mutex> guard(l->lock);
            for (auto &f : l->posted)
                f->buffer->abortWaitRecv();
        }
        if (l->thread.joinable())
            l->thread.join();
    }
}

extern "C" void tn_link_close(tn_link *t)
{
    guarded("closing TCP", 0, [&] {
        for (auto &l : t->links)
            if (l && l->connected)
                t->context->getPair(int(l->peer))->close();
        t->links.clear();
        t->context.reset();
        t->device.reset();
    });
    delete t;
}
