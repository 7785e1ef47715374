// comm/nccl/load.c: finds libnccl.so.2 on the machine, passes the INI's settings to it, and describes both to the user.
// NCCL is not part of the binary, so the binary starts where it is not installed. Only a run that asks for it fails,
// and the error lists every place that was searched.
//
// NCCL is configured by environment variables, read when it is first called. The INI's settings are put there; a
// variable that the INI does not mention is left as the user has set it. NCCL opens by itself one listening socket a
// rank and some for its data, on ports that the system chooses (net.ipv4.ip_local_port_range), on the interfaces of
// NCCL_SOCKET_IFNAME. They are neither authenticated nor encrypted, so several machines need a network of their own.
// Its monitoring (RAS, since 2.24) would listen on port 28028: it is switched off, unless NCCL_RAS_ENABLE says
// otherwise.
#include "comm/nccl/api.h"

#include "base/library.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"libnccl.so.2"};

const char *nccl_version_text(int version, char dst[NCCL_VERSION_TEXT]) {
    // Since 2.9 a version has two digits each for minor and patch; before it had one for minor: 2804 was 2.8.4.
    int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
    snprintf(dst, NCCL_VERSION_TEXT, "%d.%d.%d", version < 10000 ? version / 1000 : version / 10000, minor,
             version % 100);
    return dst;
}

// --- settings --------------------------------------------------------------------------------------------------------

static err_t setting(const char *name, const char *value, int overwrite) {
    if (setenv(name, value, overwrite) == 0) return ERR_OK;
    return err_set(ERR_INTERNAL, "nccl: %s=%s cannot be put into the environment: %s", name, value, strerror(errno));
}

static bool given(const char *text) { return text && *text; }

// Called before there are threads that read the environment (our own never do).
static err_t pass_settings(const transport_options *o) {
    if (given(o->interface)) TRY(setting("NCCL_SOCKET_IFNAME", o->interface, 1));
    if (given(o->algorithm)) TRY(setting("NCCL_ALGO", o->algorithm, 1));
    if (o->infiniband >= 0) TRY(setting("NCCL_IB_DISABLE", o->infiniband ? "0" : "1", 1));
    return setting("NCCL_RAS_ENABLE", "0", 0);
}

void nccl_library_describe(const nccl_library *lib, char *dst, size_t room) {
    char version[NCCL_VERSION_TEXT];
    const char *interface = getenv("NCCL_SOCKET_IFNAME"), *algorithm = getenv("NCCL_ALGO"),
               *no_ib = getenv("NCCL_IB_DISABLE");
    const char *ras = getenv("NCCL_RAS_ENABLE");
    if (!room) return;
    text t = {.at = dst, .room = room};
    text_put(&t, "nccl %s%s, %s", nccl_version_text(lib->version, version),
             lib->stand_in ? " (a stand-in for tests)" : "", lib->path);
    if (given(interface)) text_put(&t, ", interface %s", interface);
    if (given(no_ib)) text_put(&t, ", infiniband %s", strcmp(no_ib, "0") == 0 ? "on" : "off");
    if (given(algorithm)) text_put(&t, ", algorithm %s", algorithm);
    if (given(ras) && strcmp(ras, "0") != 0) text_put(&t, ", RAS on");
}

// --- the library -----------------------------------------------------------------------------------------------------

static err_t open_any(library *file, const char *named) {
    bool found = given(named) ? library_open(file, &named, 1) : library_search(file, names, 1);
    if (found) return ERR_OK;
    return err_set(ERR_UNAVAILABLE,
                   "nccl: libnccl.so.2 not found (tried %s): install it, or set [reduce] transport = tcp", file->text);
}

#define FIND(result, name, arguments) library_find(file, #name, true, &lib->name);
#define FIND_OPTIONAL(result, name, arguments) library_find(file, #name, false, &lib->name);

static err_t resolve(nccl_library *lib, library *file) {
    char version[NCCL_VERSION_TEXT], oldest[NCCL_VERSION_TEXT];
    NCCL_CALLS(FIND)
    NCCL_OPTIONAL_CALLS(FIND_OPTIONAL)
    if (lib->ncclGetVersion && lib->ncclGetVersion(&lib->version) == ncclSuccess && lib->version < NCCL_OLDEST)
        return err_set(
            ERR_UNAVAILABLE,
            "nccl: %s is version %s, expected %s or newer: install a newer one, or name it in [reduce] nccl_library",
            lib->path, nccl_version_text(lib->version, version), nccl_version_text(NCCL_OLDEST, oldest));
    if (file->missing)
        return err_set(ERR_UNAVAILABLE, "nccl: %s is not an NCCL of %s or newer: %d functions are missing (%s)",
                       lib->path, nccl_version_text(NCCL_OLDEST, oldest), file->missing, file->text);
    return ERR_OK;
}

static err_t check_device(nccl_library *lib, library *file, device *dev) {
    int (*host_memory)(void);
    library_find(file, "ncclStandInHostMemory", false, &host_memory);
    lib->stand_in = host_memory && host_memory();
    if (lib->stand_in || device_about(dev)->kind != DEVICE_CPU) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "nccl: it moves memory of GPUs only, and the device is a CPU (%s): "
                   "set [reduce] transport = tcp, or [device] backend = cuda",
                   device_about(dev)->name);
}

err_t nccl_library_open(nccl_library *out, const transport_options *o) {
    library file;
    *out = (nccl_library){0};
    TRY(pass_settings(o));
    TRY(open_any(&file, o->nccl_path));
    snprintf(out->path, sizeof out->path, "%s", file.path);
    err_t rc = resolve(out, &file);
    if (rc == ERR_OK) rc = check_device(out, &file, o->dev);
    if (rc != ERR_OK) library_close(&file);  // only its version was read: NCCL has no threads yet
    return rc;
}
