// Preloaded into the process of a user-mode Linux: a drive with a volatile cache below the files of a world, and the only source of
// random numbers, so that nothing of the host comes in.
//
// The drive is all *.zbd and *.img that the guest has open by hostfs. A write is undone by a power cut unless a sync came after it: of
// each sector the newest content or an older one is kept, as SEED draws. A sync of any file empties the whole cache. Accesses count from
// the moment at which the guest opens `armed`.
//
//   WORLD   the folder of the world as the guest's kernel names it        SEED    of this boot
//   CUT     the access at which the power fails; 0: it does not           ERROR   the access that fails with EIO
//   LIES    1: syncs do nothing, as in a drive that lies              TRACE   1: tells each access, and what a power cut loses
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define FILES 4096
#define SECTOR 512
// Sectors of the largest file: 4 GiB.
#define SECTORS (1u << 23)
#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

enum kind { OTHER, DISK, SECOND, BELOW, KINDS };

// The data that a write has replaced.
struct replaced {
    struct replaced *older;
    int fd;
    off_t at;
    size_t bytes;
    char old[];
};

static struct replaced *newest;
static char kinds[FILES];
static const char *const names[KINDS] = {"", "disk.zbd", "more.zbd", "*.img"};
static int armed;
static uint64_t accesses;

static uint64_t setting(const char *name) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 0) : 0;
}

// splitmix64, of the seed and a counter: streams do not disturb each other.
static uint64_t draw(int stream) {
    static uint64_t counters[2];
    uint64_t x = (setting("SEED") * 2 + stream) * 0x9e3779b97f4a7c15 + ++counters[stream] * 0xd1342543de82ef95;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

ssize_t getrandom(void *to, size_t bytes, unsigned flags) {
    (void)flags;
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)to)[i] = draw(0);
    return bytes;
}

static void cut_power(void) {
    static uint8_t *kept[KINDS];
    size_t all = 0, lost = 0;
    // In some worlds nothing of the cache is lost, in others all.
    unsigned share = draw(1) % 5;
    for (struct replaced *r = newest; r; r = r->older) {
        uint8_t **map = &kept[(int)kinds[r->fd]];
        if (!*map && !(*map = calloc(1, SECTORS))) abort();
        for (size_t s = 0; s < r->bytes; s += SECTOR, all++) {
            size_t n = (r->at + s) / SECTOR, bytes = r->bytes - s < SECTOR ? r->bytes - s : SECTOR;
            if (n >= SECTORS) abort();
            if ((*map)[n]) continue;
            if (draw(1) % 4 >= share) {
                (*map)[n] = 1;
            } else {
                lost++;
                if (setting("TRACE")) dprintf(1, "# lost sector %zu of %s\n", n, names[(int)kinds[r->fd]]);
                if (NEXT(pwrite64)(r->fd, r->old + s, bytes, r->at + s) < 0) abort();
            }
        }
    }
    dprintf(1, "# cut at access %lu: %zu of %zu sectors lost\n", accesses, lost, all);
    _exit(99);
}

// Whether this access fails. A sync has no length.
static int fails(const char *what, int fd, off_t at, size_t bytes) {
    if (!armed) return 0;
    accesses++;
    if (setting("TRACE"))
        dprintf(1, "# access %lu: %s %s, sector %ld, %zu\n", accesses, what, names[(int)kinds[fd]], at / SECTOR, bytes / SECTOR);
    if (accesses == setting("CUT")) cut_power();
    return accesses == setting("ERROR");
}

static int is_tracked(int fd) { return fd >= 0 && fd < FILES && kinds[fd] != OTHER; }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int fd = NEXT(open64)(path, flags, va_arg(rest, int));
    va_end(rest);
    const char *world = getenv("WORLD"), *end = strrchr(path, '.');
    while (path[0] == '/' && path[1] == '/') path++;
    if (fd < 0 || !world || strncmp(path, world, strlen(world))) return fd;
    if (fd < FILES) kinds[fd] = !end ? OTHER : strcmp(end, ".zbd") ? strcmp(end, ".img") ? OTHER : BELOW : strstr(path, "/more.") ? SECOND : DISK;
    if (strstr(path, "/armed")) armed = 1;
    return fd;
}

// A file with replaced sectors stays open: they are written back through it.
int close(int fd) {
    if (is_tracked(fd)) {
        for (struct replaced *r = newest; r; r = r->older)
            if (r->fd == fd) return 0;
        kinds[fd] = OTHER;
    }
    return NEXT(close)(fd);
}

static int changes(const char *what, int fd, size_t bytes, off_t at) {
    if (fails(what, fd, at, bytes)) return -1;
    struct replaced *r = calloc(1, sizeof *r + bytes);
    if (!r) abort();
    *r = (struct replaced){newest, fd, at, bytes};
    if (NEXT(pread64)(fd, r->old, bytes, at) < 0) abort();
    newest = r;
    return 0;
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) {
    if (is_tracked(fd) && changes("write", fd, bytes, at)) return errno = EIO, -1;
    return NEXT(pwrite64)(fd, from, bytes, at);
}

int fallocate64(int fd, int mode, off64_t at, off64_t bytes) {
    if (is_tracked(fd) && mode && changes("hole", fd, bytes, at)) return errno = EIO, -1;
    return NEXT(fallocate64)(fd, mode, at, bytes);
}

// The host's own page cache is no part of the world, so nothing is asked of the host's disk.
static int synced(int fd) {
    if (!is_tracked(fd)) return 0;
    if (fails("sync", fd, 0, 0)) return errno = EIO, -1;
    if (setting("LIES")) return 0;
    for (struct replaced *r; (r = newest);) {
        newest = r->older;
        free(r);
    }
    return 0;
}

int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }
