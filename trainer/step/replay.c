// trainer/step/replay.c: see trainer/step/replay.h.
#include "trainer/step/replay.h"

static err_t record(replay *r, stream *s, replay_calls calls, void *ctx) {
    TRY(stream_record_begin(s));
    err_t rc = calls(ctx);
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    err_t ended = stream_record_end(s, &r->made);  // also after a failure: the stream must leave recording
    if (rc == ERR_OK) return ended;
    replay_close(r);  // half of the calls
    return err_restore(&why);
}

err_t replay_run(replay *r, stream *s, replay_calls calls, void *ctx) {
    if (!r->made) TRY(record(r, s, calls, ctx));
    return recording_run(r->made, s);
}

void replay_close(replay *r) {
    recording_close(r->made);
    r->made = NULL;
}
