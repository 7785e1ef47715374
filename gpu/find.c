// gpu/find.c: what [device] backend = auto means on this machine. A child process tries the GPU: a process that has
// initialised CUDA can't fork ranks any more. It is asked once, before the ranks start, so that all of them get the
// same answer.
#include "gpu/gpu.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The first line of a small file; "" where there is none.
static void read_line(const char *path, char dst[64]) {
    FILE *f = fopen(path, "re");
    dst[0] = 0;
    if (!f) return;
    if (!fgets(dst, 64, f)) dst[0] = 0;
    fclose(f);
    dst[strcspn(dst, "\n")] = 0;
}

// "10de:2330" of a display controller or 3D accelerator made by NVIDIA; false: it is something else.
static bool is_gpu(const char *folder, char dst[64]) {
    char path[4096], vendor[64], class[64], model[64];
    snprintf(path, sizeof path, "%.4000s/vendor", folder), read_line(path, vendor);
    snprintf(path, sizeof path, "%.4000s/class", folder), read_line(path, class);
    snprintf(path, sizeof path, "%.4000s/device", folder), read_line(path, model);
    if (strcmp(vendor, "0x10de") != 0 || (strncmp(class, "0x0300", 6) != 0 && strncmp(class, "0x0302", 6) != 0))
        return false;
    snprintf(dst, 64, "NVIDIA, PCI id 10de:%.8s", strlen(model) > 2 ? model + 2 : "");
    return true;
}

void device_on_board(const char *root, char dst[64]) {
    char pattern[256];
    glob_t found;
    dst[0] = 0;
    snprintf(pattern, sizeof pattern, "%.200s/sys/bus/pci/devices/*", root);
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (is_gpu(found.gl_pathv[i], dst)) break;
    globfree(&found);
}

static void try_gpu(int to) {
    device_found f = {.kind = DEVICE_CPU};
    device *d;
    if (device_open(&d, &(device_options){.kind = DEVICE_AUTO, .threads = 1}) == ERR_OK) {
        f.kind = device_about(d)->kind;
        snprintf(f.why, sizeof f.why, "%s", device_about(d)->choice);
    } else snprintf(f.why, sizeof f.why, "%.*s", (int)sizeof f.why - 1, err_last()->text);
    ssize_t written = write(to, &f, sizeof f);
    _exit(written == (ssize_t)sizeof f ? 0 : 1);
}

err_t device_find(device_found *out) {
    int ends[2], status = 0;
    *out = (device_found){.kind = DEVICE_CPU};
    device_on_board("", out->gpu);
    if (pipe(ends) != 0) return err_set(ERR_UNAVAILABLE, "no pipe to look for a GPU through: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        try_gpu(ends[1]);
    }
    close(ends[1]);
    device_found f;
    ssize_t got = child > 0 ? read(ends[0], &f, sizeof f) : -1;
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (child < 0)
        return err_set(ERR_UNAVAILABLE,
                       "no process to look for a GPU: %s; raise the limit of processes (TasksMax, ulimit -u)",
                       strerror(errno));
    if (got == (ssize_t)sizeof f) {
        out->kind = f.kind;
        memcpy(out->why, f.why, sizeof out->why);
    } else
        snprintf(out->why, sizeof out->why, "auto chose the CPU (the process that tried the GPU ended with %s %d)",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return ERR_OK;
}
