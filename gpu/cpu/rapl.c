// gpu/cpu/rapl.c: see gpu/cpu/rapl.h. Only packages are counted: the zones below them (intel-rapl:N:M: cores, graphics)
// are part of them, and a zone named psys is the whole platform, which includes the packages. Memory with a counter of
// its own is left out, because few machines have one.
#include "gpu/cpu/rapl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 512, NUMBER = 32 };

// The kernel makes the text anew at each read from offset 0. Returns 0, or errno; EPROTO when it is not a number.
static int read_number(int fd, uint64_t *out) {
    char text[NUMBER], *end;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n < 0) return errno;
    text[n] = 0;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return end == text || errno || (*end && *end != '\n') ? EPROTO : 0;
}

static const char *words(int why) { return why == EPROTO ? "not a number" : strerror(why); }

static err_t refused(const char *path, int why) {
    if (why == EACCES || why == EPERM)
        return err_set(ERR_UNAVAILABLE,
                       "%s is readable by root only (since CVE-2020-8694): run as root, or let this user's "
                       "group read it (chmod in a udev rule)",
                       path);
    return err_set(ERR_UNAVAILABLE, "%s: %s", path, words(why));
}

static bool is_package(const char *dir, int zone) {
    char path[PATH], name[64] = "";
    snprintf(path, sizeof path, "%s/intel-rapl:%d/name", dir, zone);
    FILE *f = fopen(path, "re");
    if (!f) return true;  // a zone without a name is not psys
    bool read = fgets(name, sizeof name, f) != NULL;
    fclose(f);
    return !read || strncmp(name, "package", 7) == 0;
}

static err_t open_package(rapl *r, const char *dir, int zone) {
    char path[PATH];
    int why;
    if (r->count == RAPL_PACKAGES) return err_set(ERR_UNAVAILABLE, "%s: more than %d packages", dir, RAPL_PACKAGES);
    int k = r->count;
    snprintf(path, sizeof path, "%s/intel-rapl:%d/max_energy_range_uj", dir, zone);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return refused(path, errno);
    why = read_number(fd, &r->package[k].range);
    close(fd);
    if (why) return refused(path, why);
    snprintf(path, sizeof path, "%s/intel-rapl:%d/energy_uj", dir, zone);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return refused(path, errno);
    why = read_number(fd, &r->package[k].last);
    if (why) {
        close(fd);
        return refused(path, why);
    }
    r->package[k].fd = fd;
    r->package[k].zone = zone;
    r->count++;
    return ERR_OK;
}

static err_t open_packages(rapl *r, DIR *zones, const char *dir) {
    for (struct dirent *e; (e = readdir(zones));) {
        int zone, n = 0;
        if (sscanf(e->d_name, "intel-rapl:%d%n", &zone, &n) != 1 || e->d_name[n] || !is_package(dir, zone)) continue;
        TRY(open_package(r, dir, zone));
    }
    if (r->count > 0) return ERR_OK;
    return err_set(ERR_UNAVAILABLE,
                   "%s has no processor's energy counter (intel-rapl:0): this machine or its kernel has no RAPL", dir);
}

err_t rapl_open(rapl *r, const char *dir) {
    *r = (rapl){0};
    DIR *zones = opendir(dir);
    if (!zones) return err_set(ERR_UNAVAILABLE, "%s: %s: this machine or its kernel has no RAPL", dir, strerror(errno));
    err_t rc = open_packages(r, zones, dir);
    closedir(zones);
    if (rc != ERR_OK) rapl_close(r);
    return rc;
}

void rapl_close(rapl *r) {
    for (int k = 0; k < r->count; k++) close(r->package[k].fd);
    *r = (rapl){0};
}

err_t rapl_read(rapl *r, double *joules) {
    for (int k = 0; k < r->count; k++) {
        uint64_t now = 0, last = r->package[k].last, range = r->package[k].range;
        int why = read_number(r->package[k].fd, &now);
        if (why) return err_set(ERR_UNAVAILABLE, "intel-rapl:%d/energy_uj: %s", r->package[k].zone, words(why));
        r->joules += 1e-6 * (double)(now >= last ? now - last : now + (range > last ? range - last : 0));
        r->package[k].last = now;
    }
    *joules = r->joules;
    return ERR_OK;
}
