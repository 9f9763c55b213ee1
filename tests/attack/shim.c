// What the victim of scripts/attack writes to the files of its disks, and when it syncs them, in the order in which it
// happens.
//
//   cc -shared -fPIC -O1 -o shim.so shim.c -ldl
//   ATTACK_LOG=FILE ATTACK_FILES=a.zbd:b.zbd LD_PRELOAD=shim.so victim ... io=threads
//
// Each call is passed on, and leaves a frame in the log before it (a write: with its data) and one after it. The victim
// appends its own record to the same log, so that what was submitted, written, synced and acknowledged is in one order.
// All frames have the 64 bytes that victim.rs describes, with these kinds:
//
//   W  a write begins; sector: byte in the file, result: bytes of data that follow the frame
//   P  a range becomes zeroes; sector: byte in the file, result: its length
//   D  a write or range that began has ended; id: that of its beginning
//   Y  a sync begins
//   E  a sync has ended; id: that of its beginning; status: 0, or 1 if it failed
//
// `op` is the number of the file. Calls that a disk is not known to make end the program: nothing may pass unseen.
//
//   ATTACK_BOOT_ID=UUID       what /proc/sys/kernel/random/boot_id says
//
// Without a log, and with ATTACK_MEDIUM=1, it stands between a page cache and a medium that can fail. The file of a
// disk is what the page cache shows; FILE.medium is what the medium has, and FILE.dirty has a byte for each page: 1, if
// the medium is to get it yet. A sync brings dirty pages to the medium. POSIX_FADV_DONTNEED forgets pages that are not
// dirty: the file then shows what the medium has.
//
//   ATTACK_FAIL_SYNC=N-M      syncs N to M fail with EIO: pages are clean then, as in Linux, and most or all of them not on the medium
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

struct frame {
    char magic[4];
    uint8_t what, op, flags, status;
    uint64_t id;
    uint32_t zone, len;
    uint64_t sector, result, unused;
    char name[16];
};
_Static_assert(sizeof(struct frame) == 64, "a frame has 64 bytes");

enum { MAX_FILES = 8 };
static int log_fd = -1, nr_files;
static struct {
    dev_t dev;
    ino_t ino;
    // With a medium: descriptors of the file and of the medium; dirty pages.
    int fd, medium;
    uint8_t *dirty;
    size_t pages;
} files[MAX_FILES];
static atomic_ulong next_id, syncs;
static unsigned long fail_from, fail_to;
static int has_medium;
enum { PAGE = 4096 };

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((noreturn)) static void stop(const char *why) {
    fprintf(stderr, "shim: %s\n", why);
    abort();
}

static void find_medium(const char *file, off_t size, int i) {
    char name[4096];
    snprintf(name, sizeof name, "%s.medium", file);
    files[i].fd = REAL(open64)(file, O_RDWR | O_CLOEXEC);
    files[i].medium = REAL(open64)(name, O_RDWR | O_CLOEXEC);
    snprintf(name, sizeof name, "%s.dirty", file);
    int fd = REAL(open64)(name, O_RDWR | O_CLOEXEC);
    files[i].pages = (size + PAGE - 1) / PAGE;
    files[i].dirty = REAL(mmap64)(NULL, files[i].pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || files[i].fd < 0 || files[i].medium < 0 || files[i].dirty == MAP_FAILED) stop("there is no medium");
    srandom(getpid());
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("ATTACK_LOG"), *list = getenv("ATTACK_FILES"), *fail = getenv("ATTACK_FAIL_SYNC");
    if (fail && sscanf(fail, "%lu-%lu", &fail_from, &fail_to) != 2) stop("ATTACK_FAIL_SYNC is not N-M");
    // Several processes share a log, one after the other.
    next_id = (uint64_t)getpid() << 32;
    has_medium = getenv("ATTACK_MEDIUM") != NULL;
    if (!list || (!path && !has_medium)) return;
    if (path && (log_fd = REAL(open64)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0) stop("the log cannot be opened");
    char *copy = strdup(list), *rest = copy, *file;
    while ((file = strsep(&rest, ":"))) {
        struct stat s;
        if (nr_files == MAX_FILES || stat(file, &s)) stop("a file of the disk is missing");
        files[nr_files].dev = s.st_dev;
        files[nr_files].ino = s.st_ino;
        if (has_medium) find_medium(file, s.st_size, nr_files);
        nr_files++;
    }
    free(copy);
}

// The number of the file behind a descriptor; -1: not of a disk.
static int file_of(int fd) {
    struct stat s;
    if (!nr_files || fstat(fd, &s)) return -1;
    for (int i = 0; i < nr_files; i++)
        if (files[i].ino == s.st_ino && files[i].dev == s.st_dev) return i;
    return -1;
}

// Appends a frame and what follows it, in one write.
static uint64_t put(char what, int file, uint64_t id, off_t at, size_t len, const struct iovec *data, int nr, int failed) {
    if (log_fd < 0) return id;
    struct frame f = { .magic = "ZPAT", .what = what, .op = file, .status = failed, .id = id, .sector = at, .result = len };
    struct iovec list[1 + 256];
    if (nr > 256) stop("too many segments");
    list[0] = (struct iovec){ &f, sizeof f };
    for (int i = 0; i < nr; i++) list[1 + i] = data[i];
    size_t want = sizeof f + (nr ? len : 0);
    if (REAL(writev)(log_fd, list, 1 + nr) != (ssize_t)want) stop("the log cannot be written");
    return id;
}

static uint64_t begin(char what, int file, off_t at, size_t len, const struct iovec *data, int nr) {
    return put(what, file, atomic_fetch_add(&next_id, 1), at, len, data, nr, 0);
}

// Pages of a range are to go to the medium.
static void soil(int file, off_t at, size_t len) {
    for (off_t p = at / PAGE; has_medium && p * PAGE < (off_t)(at + len); p++) files[file].dirty[p] = 1;
}

// A page goes from one descriptor to another.
static void copy_page(int from, int to, size_t page) {
    char buf[PAGE];
    ssize_t n = pread64(from, buf, PAGE, page * PAGE);
    if (n < 0 || REAL(pwrite64)(to, buf, n, page * PAGE) != n) stop("a page cannot be copied");
}

// What a sync does to the medium.
static void bring(int file, int fails) {
    int all = random() % 10 < 7;
    for (size_t p = 0; p < files[file].pages; p++) {
        if (!files[file].dirty[p]) continue;
        // First: a write that comes meanwhile makes it dirty again.
        files[file].dirty[p] = 0;
        if (!fails || (!all && random() % 2)) copy_page(files[file].fd, files[file].medium, p);
    }
}

// The page cache forgets clean pages.
static void forget(int file, off_t at, off_t len) {
    static const char zeroes[PAGE];
    char buf[PAGE];
    size_t end = len ? (size_t)(at + len) / PAGE : files[file].pages;
    for (size_t p = (at + PAGE - 1) / PAGE; p < end && p < files[file].pages; p++) {
        if (files[file].dirty[p]) continue;
        if (pread64(files[file].medium, buf, PAGE, p * PAGE) == PAGE && !memcmp(buf, zeroes, PAGE))
            // What was never written is a hole.
            REAL(fallocate)(files[file].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p * PAGE, PAGE);
        else
            copy_page(files[file].medium, files[file].fd, p);
    }
}

static ssize_t written(int file, uint64_t id, ssize_t done, off_t at, size_t len) {
    soil(file, at, len);
    // A short write would have been logged as a whole one.
    if (done != (ssize_t)len) stop("a write failed, or moved less than all");
    int e = errno;
    put('D', file, id, 0, 0, NULL, 0, 0);
    errno = e;
    return done;
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t at) {
    int file = file_of(fd);
    if (file < 0) return REAL(pwrite64)(fd, buf, len, at);
    struct iovec v = { (void *)buf, len };
    uint64_t id = begin('W', file, at, len, &v, 1);
    soil(file, at, len);
    return written(file, id, REAL(pwrite64)(fd, buf, len, at), at, len);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t at) { return pwrite64(fd, buf, len, at); }

ssize_t pwritev(int fd, const struct iovec *list, int nr, off_t at) {
    int file = file_of(fd);
    if (file < 0) return REAL(pwritev)(fd, list, nr, at);
    size_t len = 0;
    for (int i = 0; i < nr; i++) len += list[i].iov_len;
    uint64_t id = begin('W', file, at, len, list, nr);
    soil(file, at, len);
    return written(file, id, REAL(pwritev)(fd, list, nr, at), at, len);
}

ssize_t pwritev64(int fd, const struct iovec *list, int nr, off64_t at) { return pwritev(fd, list, nr, at); }

int fallocate(int fd, int mode, off_t at, off_t len) {
    int file = file_of(fd);
    // Space that is found ahead changes nothing that is read.
    if (file < 0 || mode == FALLOC_FL_KEEP_SIZE) return REAL(fallocate)(fd, mode, at, len);
    int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    // A reader cannot tell a hole from zeroes that keep their space. These files are on tmpfs, which has holes alone.
    if (mode == (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE)) mode = hole;
    if (mode != hole) stop("another mode of fallocate");
    uint64_t id = begin('P', file, at, len, NULL, 0);
    int r = REAL(fallocate)(fd, mode, at, len);
    if (r) stop("no hole can be punched here");
    // That space is free is known to the file system at once.
    if (has_medium && REAL(fallocate)(files[file].medium, mode, at, len)) stop("the medium has no holes");
    put('D', file, id, 0, 0, NULL, 0, 0);
    return 0;
}

int fallocate64(int fd, int mode, off64_t at, off64_t len) { return fallocate(fd, mode, at, len); }

static int synced(int fd, int (*real)(int)) {
    int file = file_of(fd);
    if (file < 0) return real(fd);
    uint64_t id = begin('Y', file, 0, 0, NULL, 0);
    unsigned long nr = atomic_fetch_add(&syncs, 1) + 1;
    int fails = nr >= fail_from && nr <= fail_to;
    if (has_medium) bring(file, fails);
    int r = fails ? -1 : real(fd);
    put('E', file, id, 0, 0, NULL, 0, r != 0);
    if (fails) errno = EIO;
    return r;
}

int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }
int fsync(int fd) { return synced(fd, REAL(fsync)); }

ssize_t write(int fd, const void *buf, size_t len) {
    if (file_of(fd) >= 0) stop("write()");
    return REAL(write)(fd, buf, len);
}

ssize_t writev(int fd, const struct iovec *list, int nr) {
    if (file_of(fd) >= 0) stop("writev()");
    return REAL(writev)(fd, list, nr);
}

int ftruncate64(int fd, off64_t len) {
    if (file_of(fd) >= 0) stop("ftruncate()");
    return REAL(ftruncate64)(fd, len);
}

int ftruncate(int fd, off_t len) { return ftruncate64(fd, len); }

int posix_fallocate(int fd, off_t at, off_t len) {
    if (file_of(fd) >= 0) stop("posix_fallocate()");
    return REAL(posix_fallocate)(fd, at, len);
}

int syncfs(int fd) {
    if (file_of(fd) >= 0) stop("syncfs()");
    return REAL(syncfs)(fd);
}

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t at) {
    if (fd >= 0 && (prot & PROT_WRITE) && (flags & MAP_SHARED) && file_of(fd) >= 0) stop("mmap() for writing");
    return REAL(mmap64)(addr, len, prot, flags, fd, at);
}

int posix_fadvise(int fd, off_t at, off_t len, int advice) {
    int file = file_of(fd);
    if (file >= 0 && has_medium && advice == POSIX_FADV_DONTNEED) forget(file, at, len);
    return REAL(posix_fadvise)(fd, at, len, advice);
}

int posix_fadvise64(int fd, off64_t at, off64_t len, int advice) { return posix_fadvise(fd, at, len, advice); }

// A file system with a medium, not memory.
int fstatfs(int fd, struct statfs *s) {
    int r = REAL(fstatfs)(fd, s);
    if (r == 0 && has_medium && file_of(fd) >= 0) s->f_type = 0xef53;
    return r;
}

int fstatfs64(int fd, struct statfs64 *s) { return fstatfs(fd, (struct statfs *)s); }

// A descriptor that reads as the boot id that is wanted.
static int boot_id(void) {
    const char *id = getenv("ATTACK_BOOT_ID");
    int fd = memfd_create("boot_id", MFD_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%s\n", id) < 0 || lseek(fd, 0, SEEK_SET) != 0) stop("no boot id can be made");
    return fd;
}

static int is_boot_id(const char *path) {
    return getenv("ATTACK_BOOT_ID") && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0;
}

int open64(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return is_boot_id(path) ? boot_id() : REAL(open64)(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open64(path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return is_boot_id(path) ? boot_id() : REAL(openat64)(dir, path, flags, mode);
}
