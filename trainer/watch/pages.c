// trainer/watch/pages.c: see pages.h. Each page is a function of the state, or another one's text.
#include "trainer/watch/pages.h"

#include "trainer/watch/http_token.h"
#include "trainer/watch/metrics.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

err_t pages_open(pages *p) {
    p->room = metrics_room(p->state->locals);
    p->metrics = malloc(p->room);
    return p->metrics
               ? ERR_OK
               : err_set(ERR_INTERNAL, "%zu bytes for the metrics of %d ranks: no memory", p->room, p->state->locals);
}

void pages_close(pages *p) {
    free(p->metrics);
    p->metrics = NULL;
}

static const char plain[] = "text/plain; charset=utf-8";

static void show(http_page *out, int status, const char *type, const char *text) {
    *out = (http_page){.status = status, .type = type, .body = text, .bytes = strlen(text)};
}

// A text that another part makes, or why there is none.
static err_t borrow(pages *p, pages_text text, const char *type, const char *none, http_page *out) {
    if (!text) {
        show(out, 404, plain, none);
        return ERR_OK;
    }
    *out = (http_page){.status = 200, .type = type};
    return text(p->ctx, &out->body, &out->bytes);
}

static err_t get_report(void *ctx, http_page *out) {
    pages *p = ctx;
    return borrow(p, p->report, "text/html; charset=utf-8",
                  "The report is on the page of the node with rank 0. Here are /metrics, /health and /status.json.\n",
                  out);
}

static err_t get_status(void *ctx, http_page *out) {
    pages *p = ctx;
    return borrow(p, p->status, "application/json", "There is no status yet.\n", out);
}

static err_t get_metrics(void *ctx, http_page *out) {
    pages *p = ctx;
    size_t n = metrics_write(p->state, p->metrics, p->room);
    if (n == 0)
        return err_set(ERR_INTERNAL, "the metrics of %d ranks do not fit in %zu bytes", p->state->locals, p->room);
    *out = (http_page){.status = 200, .type = METRICS_TYPE, .body = p->metrics, .bytes = n};
    return ERR_OK;
}

static err_t get_health(void *ctx, http_page *out) {
    pages *p = ctx;
    bool well = health(p->state, p->health, sizeof p->health - 1);
    strcat(p->health, "\n");
    show(out, well ? 200 : 503, plain, p->health);
    return ERR_OK;
}

// However many ask, the report is made once in 5 s: of a long run that takes a while. The state changes once a second.
const http_route pages_routes[PAGES] = {
    {"/", get_report, 5},
    {"/metrics", get_metrics, 0.5},
    {"/health", get_health, 0.5},
    {"/status.json", get_status, 0.5},
};

// --- at the address of the settings ----------------------------------------------------------------------------------

// Reads the token, if there is one, for as long as `use` takes. p, out: what it needs.
static err_t with_token(const config *c, err_t (*use)(const http_options *o, http **out), pages *p, http **out) {
    char token[HTTP_TOKEN];
    bool guarded = *c->log.http_token;
    if (guarded && http_token_read(c->log.http_token, c->cluster.secret_file, token) != ERR_OK)
        return config_blame(c, "log", "http_token");
    err_t rc = use(&(http_options){c->log.http, guarded ? token : NULL, pages_routes, PAGES, p}, out);
    sodium_memzero(token, sizeof token);
    return rc == ERR_OK ? rc : err_prefix("[log] http");
}

static err_t check(const http_options *o, http **out) {
    (void)out;
    return http_check(o);
}

static err_t listen_there(const http_options *o, http **out) { return http_open(out, o); }

err_t pages_check(const config *c) { return *c->log.http ? with_token(c, check, NULL, NULL) : ERR_OK; }

err_t pages_listen(http **out, pages *p, const config *c) { return with_token(c, listen_there, p, out); }
