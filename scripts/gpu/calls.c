/* Counts and times the calls of NVIDIA's driver that bothends makes, for scripts/check-gpu.
 *
 * Preloaded, it hands out functions of its own where a library asks the dynamic linker for one of those below, as
 * bothends does for each of its calls. PyTorch, JAX and CuPy get theirs from cuGetProcAddress, so what they do is not counted.
 * `calls_begin` forgets what was seen; `calls_write` writes it as JSON lines: the call, how often, and the longest in µs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef uintptr_t W;
typedef int (*Call)(W, W, W, W, W, W);

static struct Seen {
    const char *name;
    _Atomic(Call) real;
    _Atomic uint64_t n, longest_ns;
} seen[];

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All of these take at most six words. */
static int timed(int which, W a, W b, W c, W d, W e, W f) {
    struct Seen *s = &seen[which];
    uint64_t began = now_ns();
    int result = atomic_load(&s->real)(a, b, c, d, e, f);
    uint64_t took = now_ns() - began;
    atomic_fetch_add(&s->n, 1);
    uint64_t longest = atomic_load(&s->longest_ns);
    while (took > longest && !atomic_compare_exchange_weak(&s->longest_ns, &longest, took)) {
    }
    return result;
}

#define CALLS(X) \
    X(0, cuCtxSynchronize) X(1, cuStreamSynchronize) X(2, cuEventSynchronize) \
    X(3, cuMemcpyHtoD_v2) X(4, cuMemcpyDtoH_v2) X(5, cuMemcpyHtoDAsync_v2) X(6, cuMemcpyDtoHAsync_v2) \
    X(7, cuMemcpyDtoDAsync_v2) X(8, cuMemAlloc_v2) X(9, cuMemFree_v2) X(10, cuMemHostRegister_v2) \
    X(11, cuMemHostUnregister) X(12, cuEventCreate) X(13, cuEventDestroy_v2) X(14, cuEventQuery) \
    X(15, cuEventRecord) X(16, cuStreamWaitEvent) X(17, cuCtxRecordEvent)

#define SEEN(i, name) {#name, 0, 0, 0},
static struct Seen seen[] = {CALLS(SEEN)};
#define OURS(i, name) \
    static int ours_##name(W a, W b, W c, W d, W e, W f) { return timed(i, a, b, c, d, e, f); }
CALLS(OURS)
#define TABLE(i, name) ours_##name,
static const Call ours[] = {CALLS(TABLE)};

void *dlsym(void *library, const char *name) {
    static _Atomic(void *) known;
    void *found = atomic_load(&known);
    if (!found) {
        found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        atomic_store(&known, found);
    }
    void *real = ((void *(*)(void *, const char *))found)(library, name);
    if (!real || name[0] != 'c' || name[1] != 'u') return real;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (strcmp(name, seen[i].name) == 0) {
            atomic_store(&seen[i].real, (Call)real);
            return (void *)ours[i];
        }
    }
    return real;
}

void calls_begin(void) {
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        atomic_store(&seen[i].n, 0);
        atomic_store(&seen[i].longest_ns, 0);
    }
}

int calls_write(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) return -1;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        fprintf(file, "{\"call\": \"%s\", \"n\": %llu, \"longest_us\": %.1f}\n", seen[i].name,
                (unsigned long long)atomic_load(&seen[i].n), (double)atomic_load(&seen[i].longest_ns) / 1e3);
    }
    return fclose(file);
}
