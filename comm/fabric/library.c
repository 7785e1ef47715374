// comm/fabric/library.c: see comm/fabric/library.h.
#include "comm/fabric/library.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {"libfabric.so.1"};

// The interface that is asked for. A newer library behaves as this one did.
static const uint32_t interface = FI_VERSION(1, 9);

err_t fabric_library_open(fabric_library *lib) {
    *lib = (fabric_library){0};
    library *file = &lib->file;
    if (!library_search(file, names, 1))
        return err_set(
            ERR_UNAVAILABLE,
            "fabric: libfabric.so.1 not found (tried %s): install libfabric (Debian: apt-get install libfabric1) on every node, or set [reduce] transport = tcp",
            file->text);
    library_find(file, "fi_version", true, &lib->version);
    library_find(file, "fi_getinfo", true, &lib->getinfo);
    library_find(file, "fi_freeinfo", true, &lib->freeinfo);
    library_find(file, "fi_dupinfo", true, &lib->dupinfo);
    library_find(file, "fi_fabric", true, &lib->fabric);
    library_find(file, "fi_strerror", true, &lib->strerror);
    err_t rc = ERR_OK;
    if (file->missing)
        rc = err_set(ERR_UNAVAILABLE, "fabric: %s is no libfabric: %d functions are missing (%s)", file->path,
                     file->missing, file->text);
    else if (FI_VERSION_LT(lib->version(), interface))
        rc = err_set(ERR_UNAVAILABLE, "fabric: %s is version %u.%u, expected 1.9 or newer: install a newer libfabric",
                     file->path, FI_MAJOR(lib->version()), FI_MINOR(lib->version()));
    if (rc != ERR_OK) fabric_library_close(lib);
    return rc;
}

void fabric_library_close(fabric_library *lib) { library_close(&lib->file); }

// --- the provider ----------------------------------------------------------------------------------------------------

static bool given(const char *text) { return text && *text; }

static bool has_ip(const struct fi_info *x) {
    return x->addr_format == FI_SOCKADDR || x->addr_format == FI_SOCKADDR_IN || x->addr_format == FI_SOCKADDR_IN6;
}

// What is asked of a provider: nothing that needs order among messages, since the tag of each says which one it is.
// Without a name, one that reaches other machines.
static err_t ask(struct fi_info **out, const fabric_library *lib, const char *provider, const char *domain) {
    struct fi_info *h = lib->dupinfo(NULL);
    *out = h;
    if (!h) return err_set(ERR_INTERNAL, "fabric: no memory for a question to libfabric");
    h->caps = FI_TAGGED;
    if (!given(provider)) h->caps |= FI_REMOTE_COMM;
    h->mode = FI_CONTEXT | FI_CONTEXT2;
    h->ep_attr->type = FI_EP_RDM;
    h->domain_attr->threading = FI_THREAD_DOMAIN;
    h->domain_attr->resource_mgmt = FI_RM_ENABLED;
    h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    if (given(provider)) h->fabric_attr->prov_name = strdup(provider);
    if (given(domain)) h->domain_attr->name = strdup(domain);
    if ((!given(provider) || h->fabric_attr->prov_name) && (!given(domain) || h->domain_attr->name)) return ERR_OK;
    lib->freeinfo(h);
    return err_set(ERR_INTERNAL, "fabric: no memory for a question to libfabric");
}

// "tcp;ofi_rxm (eth0), shm (shm)": what could be had without the names that were asked for.
static void say_others(const fabric_library *lib, text *t) {
    struct fi_info *h, *all = NULL;
    if (ask(&h, lib, NULL, NULL) != ERR_OK) return;
    h->caps = FI_TAGGED;
    if (lib->getinfo(interface, NULL, NULL, 0, h, &all) != 0) all = NULL;
    lib->freeinfo(h);
    const char *provider = "", *domain = "";
    for (const struct fi_info *i = all; i; i = i->next) {
        if (strcmp(i->fabric_attr->prov_name, provider) == 0 && strcmp(i->domain_attr->name, domain) == 0) continue;
        provider = i->fabric_attr->prov_name, domain = i->domain_attr->name;
        text_put(t, "%s%s (%s)", t->at[0] ? ", " : "", provider, domain);
    }
    if (all) lib->freeinfo(all);
}

static err_t none(const fabric_library *lib, const transport_options *o, const char *host, int code) {
    char others[512] = "";
    text t = {.at = others, .room = sizeof others};
    say_others(lib, &t);
    return err_set(
        ERR_UNAVAILABLE,
        "fabric: libfabric %u.%u has no provider%s%s%s%s with reliable tagged messages on %s (%s). It has: %s. Set [reduce] fabric_provider and fabric_domain to one of these, the same provider on all nodes",
        FI_MAJOR(lib->version()), FI_MINOR(lib->version()), given(o->provider) ? " " : "",
        given(o->provider) ? o->provider : "", given(o->domain) ? ", domain " : "", given(o->domain) ? o->domain : "",
        host, lib->strerror(-code), others[0] ? others : "none");
}

// Asks once more for what was found, with this host's address and with room for all receives. What can't be had is not
// insisted on: a provider without IP addresses knows no host, and one may have more room than it says.
static void refine(struct fi_info **found, const fabric_library *lib, struct fi_info *h, const char *host,
                   size_t receives) {
    struct fi_info *better = NULL;
    bool ip = has_ip(*found);
    h->addr_format = (*found)->addr_format;
    for (int roomy = 1; roomy >= 0 && !better; roomy--) {
        h->rx_attr->size = roomy && (*found)->rx_attr->size < receives ? receives : 0;
        if (lib->getinfo(interface, ip ? host : NULL, NULL, ip ? FI_SOURCE : 0, h, &better) != 0) better = NULL;
    }
    if (!better) return;
    lib->freeinfo(*found);
    *found = better;
}

err_t fabric_choose(struct fi_info **out, const fabric_library *lib, const transport_options *o, const char *host,
                    size_t receives) {
    struct fi_info *h, *found = NULL;
    TRY(ask(&h, lib, o->provider, o->domain));
    int code = lib->getinfo(interface, NULL, NULL, 0, h, &found);
    if (code == 0 && !given(o->provider)) h->fabric_attr->prov_name = strdup(found->fabric_attr->prov_name);
    if (code == 0) refine(&found, lib, h, host, receives);
    lib->freeinfo(h);
    if (code != 0) return none(lib, o, host, code);
    *out = found;
    return ERR_OK;
}
