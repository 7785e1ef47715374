// comm/fabric/library.h: libfabric, opened at run time. Its headers are needed to compile this room: the interface is
// functions in structs whose layout the headers keep stable, and only a few names are looked up in the library. Where
// the headers are missing, comm/fabric/absent.c is compiled instead of this room.
#ifndef COMM_FABRIC_LIBRARY_H
#define COMM_FABRIC_LIBRARY_H

#include "base/library.h"
#include "comm/transport.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum { FABRIC_NAME = 64 };

typedef struct fabric_library {
    library file;
    uint32_t (*version)(void);
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
    void (*freeinfo)(struct fi_info *);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    const char *(*strerror)(int);
} fabric_library;

// ERR_UNAVAILABLE: it is not installed (what to install), or is too old.
err_t fabric_library_open(fabric_library *lib);
void fabric_library_close(fabric_library *lib);

// *out (=) the provider and device to use, freed with lib->freeinfo: reliable datagrams with tagged messages. host: of
// this rank, whose address tells providers that have IP addresses which device to use. receives: how many will be
// posted at the same time. ERR_UNAVAILABLE: there is none such; names those that there are.
err_t fabric_choose(struct fi_info **out, const fabric_library *lib, const transport_options *o, const char *host,
                    size_t receives);

#endif
