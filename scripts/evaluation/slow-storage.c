/* A library that is put before a program (LD_PRELOAD): its reads come as from storage of
 * SLOW_STORAGE_BYTES_PER_S. What was read through the page cache once comes at once when it is read
 * again; what is read past it (O_DIRECT) is slow every time. io_uring is refused, so that
 * programs read with pread. One read at a time, as one disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PLACES (1u << 20)

#define AHEAD_S 0.02 /* as much as a disk has read before it is asked */

static double free_s; /* when the disk has brought what it was asked for; under `disk` */
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seen[PLACES]; /* hashes of (device, inode, offset) that lie in the page cache */

static int is_seen(int file, off_t offset) {
    struct stat about;
    uint64_t key = (uint64_t)offset * 0x9e3779b97f4a7c15u;
    if (fstat(file, &about) == 0)
        key ^= ((uint64_t)about.st_ino << 20 ^ (uint64_t)about.st_dev) * 0xff51afd7ed558ccdu;
    key |= 1;
    for (uint64_t i = key >> 44, n = 0; n < PLACES; i = (i + 1) % PLACES, n++) {
        if (seen[i] == key)
            return 1;
        if (seen[i] == 0) {
            seen[i] = key;
            return 0;
        }
    }
    return 0;
}

static ssize_t slow(int file, void *bytes, size_t len, off_t offset) {
    static ssize_t (*plain)(int, void *, size_t, off_t);
    if (!plain)
        plain = dlsym(RTLD_NEXT, "pread64");
    ssize_t n = plain(file, bytes, len, offset);
    const char *rate = getenv("SLOW_STORAGE_BYTES_PER_S");
    int flags = fcntl(file, F_GETFL);
    pthread_mutex_lock(&disk);
    if (n > 0 && rate && ((flags & O_DIRECT) || !is_seen(file, offset))) {
        /* By a timetable: who wakes late does not make the disk slower, unless it comes later
         * than a disk would have read ahead. */
        struct timespec now, until;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double now_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
        if (free_s < now_s - AHEAD_S)
            free_s = now_s - AHEAD_S;
        free_s += (double)n / atof(rate);
        until.tv_sec = (time_t)free_s;
        until.tv_nsec = (long)((free_s - (double)until.tv_sec) * 1e9);
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    pthread_mutex_unlock(&disk);
    return n;
}

ssize_t pread64(int file, void *bytes, size_t len, off_t offset) {
    return slow(file, bytes, len, offset);
}

ssize_t pread(int file, void *bytes, size_t len, off_t offset) {
    return slow(file, bytes, len, offset);
}

long syscall(long number, ...) {
    static long (*plain)(long, ...);
    va_list all;
    long a[6];
    if (!plain)
        plain = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_io_uring_setup) {
        errno = ENOSYS;
        return -1;
    }
    va_start(all, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(all, long);
    va_end(all);
    return plain(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
