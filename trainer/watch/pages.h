// trainer/watch/pages.h: what a node shows of its run over HTTP.
//
//   /             the report, live
//   /metrics      for Prometheus (trainer/watch/metrics.h)
//   /health       200 while steps advance, else 503, and why (trainer/watch/health.h)
//   /status.json  what `lockstep status` reads
#ifndef TRAINER_WATCH_PAGES_H
#define TRAINER_WATCH_PAGES_H

#include "trainer/config/config.h"
#include "trainer/watch/health.h"
#include "trainer/watch/http.h"
#include "trainer/watch/state.h"

// A text that is valid until the next call.
typedef err_t (*pages_text)(void *ctx, const char **text, size_t *bytes);

// Filled in by who has the run; then pages_open. The state may change between calls of http_serve.
typedef struct pages {
    const watch_state *state;
    pages_text report;  // HTML; NULL: another node has it, 404 says so
    pages_text status;  // JSON; NULL: 404
    void *ctx;          // of both
    char *metrics;      // by pages_open: room for /metrics
    size_t room;
    char health[HEALTH_TEXT];
} pages;

enum { PAGES = 4 };
extern const http_route pages_routes[PAGES];  // their ctx is a pages

// Allocates what /metrics needs for state->locals ranks. ERR_INTERNAL: no memory.
err_t pages_open(pages *p);
void pages_close(pages *p);

// Whether [log] http and http_token can be served at all: before a run starts, so that it need not find out later.
// ERR_CONFIG: not an address, or one beyond this machine without a token. ERR_AUTH: a token that can't be used
// (trainer/watch/http_token.h). ERR_OK where http is empty.
err_t pages_check(const config *c);

// Shows them at [log] http, by http_serve. Errors of pages_check and http_open.
err_t pages_listen(http **out, pages *p, const config *c);

#endif
