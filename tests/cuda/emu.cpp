/* emu.cpp - the threads of a block as fibers, and the order in which they run. See emu.h. */
#include "emu.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TN_EMU_TSAN                               /* this file is compiled without the sanitizer, kernels are with it */
#include <sanitizer/tsan_interface.h>
#define TSAN(x) x
#else
#define TSAN(x)
#endif

#define STACK (128u << 10)
#define MAX_THREADS 1024u

enum state { RUNS, AT_BARRIER, IN_WARP, ENDED };

struct fiber : emu_thread {
    void *stack;                                 /* stack pointer while it does not run */
    ucontext_t *context;                         /* the same where there is no switch of our own */
    void *fake;                                  /* the address sanitizer's */
    void *tsan;                                  /* the thread sanitizer's */
    enum state state;
    int kind, line, predicate;
    uint32_t mask;
    uint64_t value;
};

emu_thread *emu_self;
uint32_t emu_epoch, emu_block_epoch, emu_step[32];

static struct {
    const char *kernel;
    void (*body)(const void *arg);
    const void *arg;
    struct fiber fiber[MAX_THREADS];
    uint64_t value[32][32];                      /* what the lanes of a warp gave at their last meeting */
    uint32_t n, predicates;
    char *stacks;
    void *stack, *fake, *tsan;                   /* of the scheduler */
    char launched, barrier, ended, meeting[32];  /* what the thread sanitizer is told of order by */
    ucontext_t context;
    const void *bottom;
    size_t size;
    uint64_t random;
} run;

void emu_die(const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "emu: kernel %s, block %u %u, thread %u: ", run.kernel ? run.kernel : "-",
            emu_self ? emu_self->block.x : 0, emu_self ? emu_self->block.y : 0,
            emu_self ? emu_self->linear : 0);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    _exit(99);
}

void emu_seed(uint64_t seed)
{
    run.random = seed * 2654435761u + 1;
}

static uint32_t draw(uint32_t below)
{
    run.random = run.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((run.random >> 33) % below);
}

/* --- switching: six registers and the stack pointer where we know them, else by the C library. */
#ifdef __x86_64__
extern "C" void emu_switch(void **save, void *to);
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size emu_switch, .-emu_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");

static void make(struct fiber *f, char *stack, void (*entry)(void))
{
    void **sp = (void **)(stack + STACK);

    *--sp = NULL;                                /* nobody to return to; aligns the stack as a call does */
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    f->stack = sp;
}

static void swap_in(struct fiber *f)
{
    emu_switch(&run.stack, f->stack);
}

static void swap_out(struct fiber *f)
{
    emu_switch(&f->stack, run.stack);
}
#else
static void make(struct fiber *f, char *stack, void (*entry)(void))
{
    if (!f->context)
        f->context = (ucontext_t *)malloc(sizeof *f->context);
    getcontext(f->context);
    f->context->uc_stack.ss_sp = stack, f->context->uc_stack.ss_size = STACK;
    f->context->uc_link = NULL;
    makecontext(f->context, entry, 0);
}

static void swap_in(struct fiber *f)
{
    swapcontext(&run.context, f->context);
}

static void swap_out(struct fiber *f)
{
    swapcontext(f->context, &run.context);
}
#endif

static void resume(struct fiber *f)
{
    emu_self = f;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&run.fake, run.stacks + (size_t)f->linear * STACK, STACK);
#endif
    TSAN(__tsan_switch_to_fiber(f->tsan, __tsan_switch_to_fiber_no_sync));
    swap_in(f);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(run.fake, NULL, NULL);
#endif
    emu_self = NULL;
}

static void yield(struct fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(f->state == ENDED ? NULL : &f->fake, run.bottom, run.size);
#endif
    TSAN(__tsan_switch_to_fiber(run.tsan, __tsan_switch_to_fiber_no_sync));
    swap_out(f);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(f->fake, &run.bottom, &run.size);
#endif
}

static void entry(void)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &run.bottom, &run.size);
#endif
    TSAN(__tsan_acquire(&run.launched));
    run.body(run.arg);
    TSAN(__tsan_release(&run.ended));
    static_cast<struct fiber *>(emu_self)->state = ENDED;
    yield(static_cast<struct fiber *>(emu_self));
    abort();
}

/* --- meetings */
int emu_barrier(int predicate, int line)
{
    struct fiber *f = static_cast<struct fiber *>(emu_self);

    f->predicate = predicate, f->line = line, f->state = AT_BARRIER;
    TSAN(__tsan_release(&run.barrier));
    yield(f);
    TSAN(__tsan_acquire(&run.barrier));
    return (int)run.predicates;
}

const uint64_t *emu_meet(uint32_t mask, uint64_t value, int kind, int line)
{
    struct fiber *f = static_cast<struct fiber *>(emu_self);

    if (!(mask >> f->lane & 1))
        emu_die("line %d: mask %08x lacks the caller, lane %u", line, mask, f->lane);
    f->mask = mask, f->value = value, f->kind = kind, f->line = line, f->state = IN_WARP;
    TSAN(if (kind == EMU_SYNCWARP) __tsan_release(&run.meeting[f->warp]));
    yield(f);
    TSAN(if (kind == EMU_SYNCWARP) __tsan_acquire(&run.meeting[f->warp]));
    return run.value[f->warp];
}

/* May the lanes that f waits for go on? */
static bool complete(const struct fiber *f)
{
    bool all = true;

    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint32_t other = f->warp * 32 + lane;
        const struct fiber *g = &run.fiber[other];

        if (!(f->mask >> lane & 1))
            continue;
        emu_self = &run.fiber[f->linear];
        if (other >= run.n)
            emu_die("line %d: mask %08x names lane %u, which does not exist", f->line, f->mask, lane);
        if (g->state == ENDED)
            emu_die("line %d: mask %08x names lane %u, which has ended", f->line, f->mask, lane);
        if (g->state == IN_WARP && (g->mask != f->mask || g->kind != f->kind || g->line != f->line))
            emu_die("line %d: lane %u is in another warp function, at line %d with mask %08x", f->line, lane,
                    g->line, g->mask);
        all &= g->state == IN_WARP;
    }
    return all;
}

static bool release_warp(uint32_t warp)
{
    bool any = false;

    for (uint32_t lane = 0; lane < 32 && warp * 32 + lane < run.n; lane++) {
        struct fiber *f = &run.fiber[warp * 32 + lane];

        if (f->state != IN_WARP || !complete(f))
            continue;
        if (f->kind == EMU_SYNCWARP)
            emu_step[warp]++;
        for (uint32_t k = 0; k < 32; k++)
            if (f->mask >> k & 1) {
                run.value[warp][k] = run.fiber[warp * 32 + k].value;
                run.fiber[warp * 32 + k].state = RUNS;
            }
        any = true;
    }
    return any;
}

static void release_block(void)
{
    const struct fiber *first = NULL;

    run.predicates = 0;
    for (uint32_t i = 0; i < run.n; i++) {
        struct fiber *f = &run.fiber[i];

        emu_self = f;
        if (f->state == IN_WARP)
            emu_die("line %d: waits for lanes %08x of its warp, which are at a barrier", f->line, f->mask);
        if (f->state == ENDED)
            emu_die("has ended, while others wait at a __syncthreads");
        if (!first)
            first = f;
        if (f->line != first->line)
            emu_die("__syncthreads at line %d, thread %u is at that of line %d", f->line, first->linear,
                    first->line);
        run.predicates += f->predicate != 0;
        f->state = RUNS;
    }
    emu_epoch++;
}

/* --- a block */
static void shuffle(uint32_t *order, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = draw(i), t = order[i - 1];

        order[i - 1] = order[j], order[j] = t;
    }
}

/* Until each lane has ended or waits for other warps. */
static void run_warp(uint32_t warp)
{
    uint32_t order[32], n;

    do {
        n = 0;
        for (uint32_t i = warp * 32; i < warp * 32 + 32 && i < run.n; i++)
            if (run.fiber[i].state == RUNS)
                order[n++] = i;
        shuffle(order, n);
        for (uint32_t i = 0; i < n; i++)
            resume(&run.fiber[order[i]]);
    } while (release_warp(warp));
}

static void run_block(void)
{
    uint32_t order[32], warps = (run.n + 31) / 32, ended = 0;

    emu_block_epoch = ++emu_epoch;
    TSAN(__tsan_release(&run.launched));
    for (uint32_t i = 0; i < warps; i++)
        order[i] = i;
    for (;;) {
        shuffle(order, warps);
        for (uint32_t i = 0; i < warps; i++)
            run_warp(order[i]);
        ended = 0;
        for (uint32_t i = 0; i < run.n; i++)
            ended += run.fiber[i].state == ENDED;
        if (ended == run.n) {
            TSAN(__tsan_acquire(&run.ended));
            return;
        }
        release_block();
        emu_self = NULL;
    }
}

static void make_block(dim3 grid, dim3 block, dim3 at)
{
    for (uint32_t i = 0; i < run.n; i++) {
        struct fiber *f = &run.fiber[i];

        f->thread = dim3(i % block.x, i / block.x % block.y, i / (block.x * block.y));
        f->block = at, f->block_size = block, f->grid = grid;
        f->linear = i, f->lane = i % 32, f->warp = i / 32;
        f->state = RUNS, f->fake = NULL;
        TSAN(if (!f->tsan) f->tsan = __tsan_create_fiber(0));
        make(f, run.stacks + (size_t)i * STACK, entry);
    }
}

void emu_run(const char *name, dim3 grid, dim3 block, void (*body)(const void *arg), const void *arg)
{
    run.kernel = name, run.body = body, run.arg = arg, run.n = block.x * block.y * block.z;
    if (!run.n || run.n > MAX_THREADS || !grid.x || grid.x > 2147483647u || !grid.y || grid.y > 65535 ||
        !grid.z || grid.z > 65535)
        emu_die("launched with a grid of %u %u %u blocks of %u threads", grid.x, grid.y, grid.z, run.n);
    TSAN(run.tsan = __tsan_get_current_fiber());
    if (!run.stacks)
        run.stacks = (char *)mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (uint32_t z = 0; z < grid.z; z++)
        for (uint32_t y = 0; y < grid.y; y++)
            for (uint32_t x = 0; x < grid.x; x++) {
                make_block(grid, block, dim3(x, y, z));
                run_block();
            }
    run.kernel = NULL;
}

extern "C" void tn_emu_seed(uint64_t seed);
extern "C" void tn_emu_seed(uint64_t seed)
{
    emu_seed(seed);
}
