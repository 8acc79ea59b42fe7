// Makes opening the images of a data set take a while, as on network storage: preloaded into a
// program (LD_PRELOAD), it waits SLOW_OPEN_US microseconds in each open of a file below
// SLOW_OPEN_UNDER. Nothing else is changed. For scripts/measure-slow-open.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

static void wait_a_while(const char *path) {
    const char *under = getenv("SLOW_OPEN_UNDER"), *us = getenv("SLOW_OPEN_US");
    if (!under || !us || strncmp(path, under, strlen(under)) != 0) return;
    long ns = atol(us) * 1000;
    struct timespec span = {ns / 1000000000, ns % 1000000000};
    nanosleep(&span, NULL);
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (!(flags & O_DIRECTORY)) wait_a_while(path);
    return next(path, flags, mode);
}
