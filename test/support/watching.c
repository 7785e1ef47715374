// test/support/watching.c: shows a state that is made up, as a watcher shows that of a run: for scripts, and for people
// who want to look.
//
//   watching metrics                                       what Prometheus would be given
//   watching file FILE                                     the same into a file
//   watching serve ADDRESS SECONDS [TOKEN_FILE]            the pages, at http://ADDRESS/; says where, then how much was
//   asked for watching get ADDRESS PATH [TOKEN_FILE]                 what is shown there: status, headers, page
#include "base/clock.h"
#include "test/support/watch_state.h"
#include "trainer/watch/http_host.h"
#include "trainer/watch/http_token.h"
#include "trainer/watch/metrics.h"
#include "trainer/watch/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 2 };

static err_t report(void *ctx, const char **html, size_t *bytes) {
    (void)ctx;
    *html = "<!doctype html><html lang=en><meta charset=utf-8><title>made up</title><p>There is no run here.";
    *bytes = strlen(*html);
    return ERR_OK;
}

static err_t status(void *ctx, const char **json, size_t *bytes) {
    (void)ctx;
    *json = "{\"t\":\"status\",\"state\":\"training\",\"step\":120}\n";
    *bytes = strlen(*json);
    return ERR_OK;
}

static err_t serve(watch_state *s, const char *address, double seconds, const char *token_file) {
    pages p = {.state = s, .report = report, .status = status};
    char token[HTTP_TOKEN];
    http *h;
    if (token_file) TRY(http_token_read(token_file, "", token));
    TRY(pages_open(&p));
    TRY(http_open(&h, &(http_options){address, token_file ? token : NULL, pages_routes, PAGES, &p}));
    printf("http://%s/\n", http_where(h));
    fflush(stdout);
    err_t rc = ERR_OK;
    for (double end = clock_now() + seconds; rc == ERR_OK && clock_now() < end;) rc = http_serve(h, end);
    http_counts n = http_counted(h);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%lld connections: %lld pages, %lld refused, %lld busy, %lld dropped; %.3f s of CPU time, %ld KB\n",
           (long long)n.accepted, (long long)n.shown, (long long)n.refused, (long long)n.busy, (long long)n.dropped,
           (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
           used.ru_maxrss);
    http_close(h);
    pages_close(&p);
    return rc;
}

// If there is no server yet, nothing is printed: a script tries again.
static err_t get(const char *address, const char *path, const char *token_file) {
    http_address at;
    char token[HTTP_TOKEN] = "", request[1024], bytes[4096];
    TRY(http_address_read(&at, address));
    if (token_file) TRY(http_token_read(token_file, "", token));
    int fd = socket(at.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, &at.at.any, at.size) != 0)
        return err_set(ERR_UNAVAILABLE, "%s: %s", address, strerror(errno));
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n\r\n", path, address,
                     token_file ? "Authorization: Bearer " : "Accept: */*", token);
    if (n >= (int)sizeof request || send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        return err_set(ERR_IO, "%s: the request was not sent", address);
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) fwrite(bytes, 1, (size_t)got, stdout);
    close(fd);
    return ERR_OK;
}

static err_t run(int argc, char **argv) {
    static char text[65536];
    watch_rank rank[RANKS];
    watch_state s = state_make(rank, RANKS);
    if (argc == 2 && strcmp(argv[1], "metrics") == 0) {
        metrics_write(&s, text, sizeof text);
        fputs(text, stdout);
        return ERR_OK;
    }
    if (argc == 3 && strcmp(argv[1], "file") == 0) return metrics_file(&s, argv[2]);
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "serve") == 0)
        return serve(&s, argv[2], atof(argv[3]), argc == 5 ? argv[4] : NULL);
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "get") == 0)
        return get(argv[2], argv[3], argc == 5 ? argv[4] : NULL);
    return err_set(
        ERR_USAGE,
        "usage: watching metrics | file FILE | serve ADDRESS SECONDS [TOKEN_FILE] | get ADDRESS PATH [TOKEN_FILE]");
}

int main(int argc, char **argv) {
    err_t rc = run(argc, argv);
    if (rc != ERR_OK) fprintf(stderr, "watching: %s\n", err_last()->text);
    return (int)rc;
}
