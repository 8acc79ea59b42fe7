/* A stand-in for NVIDIA's libcuda.so over host memory, for tests on machines without a GPU.
 *
 * Work is done when it is enqueued, so every event is reached once it is recorded. It is strict where
 * the real one is: calls without the primary context current fail, and so do unknown handles.
 * BOTHENDS_STUB in the environment makes it fail on purpose; -DMISSING leaves functions out.
 * BOTHENDS_STUB_KERNELS names the kernels compiled for the CPU (kernels/cpu/library.cpp), which then
 * run when they are launched.
 * Nothing here is NVIDIA's: declarations follow the public documentation of the driver API. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_PTX = 218, UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400, NOT_FOUND = 500, LAUNCH_FAILED = 719, SYSTEM_DRIVER_MISMATCH = 803,
    ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, CAPTURE_UNSUPPORTED = 900
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialised, retained, other_retained;
static char context_place, other_place; /* of device 7, and of device 8 or somebody's own */
static __thread void *current;

/* Everything that is alive: allocations, registrations, streams, events, modules. */
enum kind { MEMORY, REGISTERED, STREAM, EVENT, MODULE, N_KINDS };
struct thing { enum kind kind; uintptr_t at; size_t bytes; void *owned, *context; };
static struct thing things[4096];

static struct thing *find(enum kind kind, uintptr_t at) {
    for (int i = 0; i < 4096; i++)
        if (things[i].at && things[i].kind == kind && things[i].at <= at
            && at < things[i].at + (things[i].bytes ? things[i].bytes : 1))
            return &things[i];
    return NULL;
}

static int add(enum kind kind, uintptr_t at, size_t bytes, void *owned) {
    for (int i = 0; i < 4096; i++)
        if (!things[i].at) {
            things[i] = (struct thing){ kind, at, bytes, owned, current };
            return SUCCESS;
        }
    return OUT_OF_MEMORY;
}

static int end(enum kind kind, uintptr_t at, int otherwise) {
    struct thing *thing = find(kind, at);
    if (!thing || thing->at != at) return otherwise;
    free(thing->owned);
    memset(thing, 0, sizeof *thing);
    return SUCCESS;
}

/* Something to point at. */
static int make(enum kind kind, void **handle) {
    void *owned = malloc(16);
    *handle = owned;
    return add(kind, (uintptr_t)owned, 0, owned);
}

static int is(const char *mode) {
    const char *said = getenv("BOTHENDS_STUB");
    return said && !strcmp(said, mode);
}

/* How much of a kind is alive; of one kind more, how often the context is retained. For tests. */
int stub_alive(int kind) {
    if (kind == N_KINDS) return retained;
    int n = 0;
    for (int i = 0; i < 4096; i++) n += things[i].at && things[i].kind == (enum kind)kind;
    return n;
}

/* How often work on each stream was made to wait, and its place recorded. */
static struct { uintptr_t stream; int waits, records; } streams[256];

static void note(void *stream, int waits, int records) {
    for (int i = 0; i < 256; i++)
        if (streams[i].stream == (uintptr_t)stream || !(streams[i].waits + streams[i].records)) {
            streams[i].stream = (uintptr_t)stream;
            streams[i].waits += waits, streams[i].records += records;
            return;
        }
}

/* Waits on a stream so far, or with `records` events recorded on it. For tests. */
int stub_noted(uintptr_t stream, int records) {
    for (int i = 0; i < 256; i++)
        if (streams[i].stream == stream) return records ? streams[i].records : streams[i].waits;
    return 0;
}

/* Whether host memory there is pinned. For tests. */
int stub_is_registered(uintptr_t at) { return find(REGISTERED, at) != NULL; }

/* Events recorded behind all of a context's streams. For tests. */
static int context_records[2];
int stub_context_records(int other) { return context_records[other]; }

/* A context that is not the primary one, as another device's would be. For tests. */
void *stub_other_context(void) { return &other_place; }

/* Two devices are there in a mode of its own, so that calls in the wrong context fail otherwise. */
static int may_work(void *context) {
    if (context == &other_place) return is("two_devices") && other_retained;
    return context == &context_place && retained;
}

/* Some thread captures a graph in global mode (1), or did until a call of another voided that (-1). */
static int capture;
static __thread int capture_mode; /* 0 global, 1 of the thread alone, 2 relaxed */

/* Begins or ends the capture; returns what it was. For tests. */
int stub_capture(int begins) {
    int was = capture;
    capture = begins;
    return was;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    if (*mode < 0 || *mode > 2) return INVALID_VALUE;
    capture_mode = *mode, *mode = before;
    return SUCCESS;
}

/* Whether a capture forbids the calling thread what could be unsafe in one; asking voids it then. */
static int is_forbidden(void) {
    if (!capture || capture_mode) return 0;
    capture = -1;
    return 1;
}

#define BEGIN                                                    \
    if (!initialised) return NOT_INITIALIZED;                    \
    if (!may_work(current)) return INVALID_CONTEXT;              \
    pthread_mutex_lock(&lock);                                   \
    int result = SUCCESS
#define END pthread_mutex_unlock(&lock); return result

int cuInit(unsigned flags) {
    if (is("init_fails")) return SYSTEM_DRIVER_MISMATCH;
    if (is("no_device")) return NO_DEVICE;
    while (is("hangs")) sleep(1);
    initialised = 1;
    return flags ? INVALID_VALUE : SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    static const struct { int code; const char *name; } names[] = {
        { INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" }, { OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
        { NO_DEVICE, "CUDA_ERROR_NO_DEVICE" }, { INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
        { INVALID_PTX, "CUDA_ERROR_INVALID_PTX" }, { NOT_FOUND, "CUDA_ERROR_NOT_FOUND" },
        { UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" },
        { SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" },
        { ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" },
        { LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED" }, { 801, "CUDA_ERROR_NOT_SUPPORTED" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) { *name = names[i].name; return SUCCESS; }
    *name = NULL;
    return INVALID_VALUE;
}

int cuDriverGetVersion(int *version) { *version = is("old") ? 11080 : 13000; return SUCCESS; }
int cuDeviceGetCount(int *count) {
    *count = is("none_visible") ? 0 : is("two_devices") ? 2 : 1;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = 7 + ordinal;
    return ordinal > is("two_devices") ? INVALID_DEVICE : SUCCESS;
}

static int is_device(int device) { return device == 7 || (device == 8 && is("two_devices")); }

int cuDeviceGetName(char *name, int len, int device) {
    snprintf(name, len, "Stub of a device");
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetPCIBusId(char *name, int len, int device) {
    snprintf(name, len, "0000:1B:00.0");
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? (is("volta") ? 7 : 9) : attribute == 76 ? 0 : attribute == 16 ? 132 : -1;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)80 << 30;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (is("no_context")) return OUT_OF_MEMORY;
    if (device == 8 && is("two_devices")) {
        other_retained++;
        *context = &other_place;
        return SUCCESS;
    }
    retained++;
    *context = &context_place;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = device == 8 ? other_retained > 0 : retained > 0;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    *(device == 8 ? &other_retained : &retained) -= 1;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuCtxGetCurrent(void **context) {
    *context = current;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

int cuCtxSetCurrent(void *context) {
    int known = !context || context == &context_place || context == &other_place;
    if (known) current = context;
    return known ? SUCCESS : INVALID_CONTEXT;
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    BEGIN;
    void *place = NULL;
    if (is_forbidden()) result = CAPTURE_UNSUPPORTED;
    else if (!bytes) result = INVALID_VALUE;
    else if (bytes > (size_t)1 << 34 || posix_memalign(&place, 256, bytes)) result = OUT_OF_MEMORY;
    else result = add(MEMORY, (uintptr_t)place, bytes, place);
    *at = (uintptr_t)place;
    END;
}

int cuMemFree_v2(uint64_t at) {
    BEGIN;
    result = is_forbidden() ? CAPTURE_UNSUPPORTED : end(MEMORY, at, INVALID_VALUE);
    END;
}

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags) {
    BEGIN;
    uintptr_t at = (uintptr_t)base;
    if (is_forbidden()) result = CAPTURE_UNSUPPORTED;
    else if (flags != 1 || !bytes || at % 4096) result = INVALID_VALUE;
    else if (find(REGISTERED, at) || find(REGISTERED, at + bytes - 1)) result = ALREADY_REGISTERED;
    else result = add(REGISTERED, at, bytes, NULL);
    END;
}

int cuMemHostUnregister(void *base) {
    BEGIN;
    result = is_forbidden() ? CAPTURE_UNSUPPORTED : end(REGISTERED, (uintptr_t)base, NOT_REGISTERED);
    END;
}

/* 1 is CU_STREAM_NON_BLOCKING, 2 CU_EVENT_DISABLE_TIMING. */
int cuStreamCreate(void **stream, unsigned flags) {
    BEGIN;
    result = flags == 1 ? make(STREAM, stream) : INVALID_VALUE;
    END;
}

int cuStreamDestroy_v2(void *stream) {
    BEGIN;
    result = end(STREAM, (uintptr_t)stream, INVALID_HANDLE);
    END;
}

int cuEventCreate(void **event, unsigned flags) {
    BEGIN;
    result = flags == 2 || !flags ? make(EVENT, event) : INVALID_VALUE;
    if (!result) *(unsigned *)*event = flags;
    END;
}

int cuEventDestroy_v2(void *event) {
    BEGIN;
    result = end(EVENT, (uintptr_t)event, INVALID_HANDLE);
    END;
}

/* 1 is CU_STREAM_LEGACY, 2 CU_STREAM_PER_THREAD. */
static int is_stream(void *stream) {
    return (uintptr_t)stream <= 2 || find(STREAM, (uintptr_t)stream);
}

int cuEventRecord(void *event, void *stream) {
    BEGIN;
    struct thing *known = find(EVENT, (uintptr_t)event), *on = find(STREAM, (uintptr_t)stream);
    if (!known || !is_stream(stream)) result = INVALID_HANDLE;
    else if (on && on->context != known->context) result = INVALID_HANDLE;
    else note(stream, 0, 1);
    END;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    BEGIN;
    if (flags || !find(EVENT, (uintptr_t)event) || !is_stream(stream)) result = INVALID_HANDLE;
    else note(stream, 1, 0);
    END;
}

#ifndef NO_CONTEXT_EVENTS
int cuCtxRecordEvent(void *context, void *event) {
    BEGIN;
    struct thing *known = find(EVENT, (uintptr_t)event);
    if (capture) result = CAPTURE_UNSUPPORTED, capture = -1; /* in every mode */
    else if (!known || known->context != context) result = INVALID_HANDLE;
    else context_records[context == &other_place]++;
    END;
}
#endif

int cuEventQuery(void *event) {
    BEGIN;
    if (is_forbidden()) result = CAPTURE_UNSUPPORTED;
    else if (!find(EVENT, (uintptr_t)event)) result = INVALID_HANDLE;
    else if (is("never_reached")) result = 600;
    END;
}

/* Of events with timing alone. The stub has no clock: it says half a millisecond. */
int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    BEGIN;
    int known = find(EVENT, (uintptr_t)from) && find(EVENT, (uintptr_t)to);
    if (!known || *(unsigned *)from || *(unsigned *)to) result = INVALID_HANDLE;
    else *milliseconds = 0.5f;
    END;
}

static int copy(uintptr_t to, uintptr_t from, uint64_t device, size_t bytes, void *stream) {
    struct thing *memory = find(MEMORY, device);
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (!memory || device + bytes > memory->at + memory->bytes) return INVALID_VALUE;
    memcpy((void *)to, (void *)from, bytes);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    BEGIN; result = copy(to, (uintptr_t)from, to, bytes, stream); END;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    BEGIN; result = copy((uintptr_t)to, from, from, bytes, stream); END;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    BEGIN;
    if (!find(MEMORY, from)) result = INVALID_VALUE;
    else result = copy(to, from, to, bytes, stream);
    END;
}

int cuModuleLoadData(void **module, const void *text) {
    BEGIN;
    const char *version = strstr(text, ".version"); /* behind comments */
    if (!version) result = INVALID_PTX;
    else if (strncmp(version, ".version 8.", 11)) result = UNSUPPORTED_PTX_VERSION;
    else result = make(MODULE, module);
    END;
}

int cuModuleUnload(void *module) {
    BEGIN;
    result = end(MODULE, (uintptr_t)module, INVALID_HANDLE);
    END;
}

static void add_to_all(uint8_t *bytes, uint64_t n, uint8_t more) {
    for (uint64_t i = 0; i < n; i++) bytes[i] += more;
}

/* The kernels for the CPU, by their doors. */
static int (*find_kernel)(const char *);
static int (*run_kernel)(int, const unsigned *, const unsigned *, uint64_t, const uint64_t (*)[2],
                         size_t, void *const *, char *, size_t);

static int has_kernels(void) {
    const char *path = getenv("BOTHENDS_STUB_KERNELS");
    void *library = path && !run_kernel ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) {
        *(void **)&find_kernel = dlsym(library, "bothends_find_kernel");
        *(void **)&run_kernel = dlsym(library, "bothends_run_kernel");
    }
    return find_kernel && run_kernel;
}

/* Kernels for the CPU have small numbers as handles, from 1. */
enum { MOST_KERNELS = 4096 };

/* Keeps the driver's lock, as a call that hangs does, until it is told to let go. For tests. */
void stub_hold(int is_held) { is_held ? pthread_mutex_lock(&lock) : pthread_mutex_unlock(&lock); }

/* A kernel for the CPU, or `stub_add(bytes, n, more)`. */
int cuModuleGetFunction(void **function, void *module, const char *name) {
    BEGIN;
    int number = has_kernels() ? find_kernel(name) : -1;
    if (!find(MODULE, (uintptr_t)module)) result = INVALID_HANDLE;
    else if (number >= 0) *function = (void *)(uintptr_t)(number + 1);
    else if (strcmp(name, "stub_add")) result = NOT_FOUND;
    else *(void (**)(uint8_t *, uint64_t, uint8_t))function = add_to_all;
    END;
}

#ifndef MISSING
static int by_place(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* Runs a kernel for the CPU, which may touch what is allocated. */
static int run(int number, const unsigned grid[3], const unsigned launch[2], void **arguments) {
    static uint64_t ranges[4096][2];
    char message[512] = "";
    size_t n = 0;
    for (int i = 0; i < 4096; i++)
        if (things[i].at && things[i].kind == MEMORY) {
            ranges[n][0] = things[i].at;
            ranges[n++][1] = things[i].at + things[i].bytes;
        }
    qsort(ranges, n, sizeof *ranges, by_place);
    if (!run_kernel(number, grid, launch, 0, ranges, n, arguments, message, sizeof message))
        return SUCCESS;
    fprintf(stderr, "stub: %s\n", message);
    return LAUNCH_FAILED;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
    BEGIN;
    if ((uintptr_t)function <= MOST_KERNELS) {
        const unsigned grid[3] = { x, y, z }, launch[2] = { bx, shared };
        if (!function || !has_kernels() || !is_stream(stream)) result = INVALID_HANDLE;
        else if (by != 1 || bz != 1 || extra) result = INVALID_VALUE;
        else result = run((int)(uintptr_t)function - 1, grid, launch, arguments);
    } else if (x != 2 || y != 3 || z != 4 || bx != 128 || by != 1 || bz != 1 || shared != 16 || extra)
        result = INVALID_VALUE;
    else if (!is_stream(stream) || function != (void *)add_to_all)
        result = INVALID_HANDLE;
    else
        add_to_all(*(uint8_t **)arguments[0], *(uint64_t *)arguments[1],
                   *(uint8_t *)arguments[2]);
    END;
}
#endif
