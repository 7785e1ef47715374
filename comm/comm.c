// comm/comm.c: what every transport's communicator can do once it has a table.
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

err_t comm_send(comm *c, int to, const void *data, size_t bytes, stream *s) {
    return c->table->exchange(c, &(comm_part){to, (void *)data, bytes}, 1, NULL, 0, s);
}

err_t comm_recv(comm *c, int from, void *data, size_t bytes, stream *s) {
    return c->table->exchange(c, NULL, 0, &(comm_part){from, data, bytes}, 1, s);
}

err_t comm_agree_max(comm *c, int64_t *value, stream *s) {
    comm *host = c->host;
    double most = (double)*value;  // exact up to 2^53, far beyond any step
    TRY(host->table->all_reduce(host, &most, 1, FP64, REDUCE_MAX, s));
    TRY(stream_wait(s));
    *value = (int64_t)most;
    return ERR_OK;
}

typedef struct verdict {
    int32_t code;
    char text[ERR_TEXT];
} verdict;

// The lowest rank that failed broadcasts its error. The number agreed on is larger for lower ranks, and 0 if none
// failed.
err_t comm_agree_ok(comm *c, err_t mine, stream *s) {
    if (c->world == 1) return mine;
    err_record own = mine != ERR_OK ? *err_last() : (err_record){0};
    int64_t failed = mine != ERR_OK ? c->world - c->rank : 0;
    TRY(comm_agree_max(c, &failed, s));
    if (failed == 0) return ERR_OK;
    int who = c->world - (int)failed;
    verdict v = {.code = mine};
    if (who == c->rank) memcpy(v.text, own.text, sizeof v.text);
    TRY(c->host->table->broadcast(c->host, &v, sizeof v, who, s));
    TRY(stream_wait(s));
    if (who == c->rank) {
        err_restore(&own);
        return err_share();
    }
    char name[COMM_NAME];
    v.text[sizeof v.text - 1] = 0;
    err_set((err_t)v.code, "%s: %s", comm_rank_text(c, who, name), v.text);
    return err_share();
}
