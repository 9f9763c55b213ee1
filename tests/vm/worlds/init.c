/* First program of the guest of a world. The root is a folder of the host's, read-only; the folder of the world is /srv. Paths are the
 * same for each world, as the kernel's command line is in the memory of each program. A shell in its place would start a program for
 * each mount and module, some fifteen in each boot. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(const char *what) {
    if (what)
        perror(what);
    reboot(RB_POWER_OFF);
}

static void mounted(const char *what, const char *where, const char *kind, unsigned long flags, const char *options) {
    if (mount(what, where, kind, flags, options))
        end(where);
}

/* word(LINE, KEY, OUT): the value of KEY=VALUE in a line of words, or "". */
static const char *word(const char *line, const char *key, char out[64]) {
    const char *at = strstr(line, key);
    out[0] = 0;
    if (at)
        sscanf(at + strlen(key), "%63[^ \n]", out);
    return out;
}

static void load(const char *module) {
    char path[128];
    snprintf(path, sizeof path, "/modules/%s.ko", module);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || syscall(SYS_finit_module, fd, strcmp(module, "null_blk") ? "" : "nr_devices=0", 0))
        end(path);
    close(fd);
}

static void raise_loopback(void) {
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo))
        end("lo");
    close(fd);
}

int main(void) {
    static char line[4096];
    char mode[64], module[64];
    mounted("p", "/proc", "proc", 0, NULL);
    mounted("d", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(console, fd);
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, line, sizeof line - 1) < 0)
        end("/proc/cmdline");
    close(fd);
    if (*word(line, " module=", module))
        load(module);
    mounted("n", "/r", "hostfs", MS_RDONLY, "/proc/self/cwd/../root");
    mounted("/proc", "/r/proc", NULL, MS_MOVE, NULL);
    mounted("s", "/r/sys", "sysfs", 0, NULL);
    mounted("/dev", "/r/dev", NULL, MS_MOVE, NULL);
    mounted("t", "/r/tmp", "tmpfs", 0, NULL);
    mounted("t", "/r/run", "tmpfs", 0, NULL);
    mounted("c", "/r/sys/kernel/config", "configfs", 0, NULL);
    raise_loopback();
    word(line, " mode=", mode);
    int compiles = !strcmp(mode, "compile");
    mounted("n", "/r/media", "hostfs", compiles ? 0 : MS_RDONLY, "/proc/self/cwd/../share");
    mounted("n", "/r/srv", "hostfs", 0, "/proc/self/cwd");
    pid_t guest = fork();
    if (guest == 0) {
        char *arguments[] = {"python3", "-S", "-P", "-c", "import guest; guest.main()", mode, NULL};
        char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "PYTHONHASHSEED=0", "PYTHONPATH=/media",
                               "LC_ALL=C.UTF-8", compiles ? NULL : "PYTHONDONTWRITEBYTECODE=1", NULL};
        if (!chroot("/r") && !chdir("/"))
            execve("/usr/bin/python3", arguments, environment);
        perror("python3");
        _exit(127);
    }
    /* Orphans of the guest's program become children of this one. */
    while (guest > 0 && wait(NULL) != guest)
        ;
    end(NULL);
}
