// comm/flight_text.c: see comm/flight_text.h.
#include "comm/flight_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char first_line[] = "lockstep flight recording 1";

// Neither ends a line or a field, nor speaks to a terminal.
static char plain(char c) { return (unsigned char)c < ' ' || c == 0x7f ? '?' : c; }

static void put_field(text *t, const char *s) {
    for (; *s; s++) text_add(t, &(char){plain(*s)}, 1);
}

// --- for a person ----------------------------------------------------------------------------------------------------

static void put_head(text *t, const flight_view *v) {
    char when[32];
    time_t at = (time_t)v->time;
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    text_put(t, "%s\nabout\t%d\t%d\t%d\t%" PRIu32 "\t%" PRId64 "\t", first_line, v->node, v->nodes, v->world, v->epoch,
             v->time);
    put_field(t, v->run), text_put(t, "\n\n");
    text_put(t, "%s, node %d of %d, world %" PRIu32 " of this run, %d ranks; at %s\n\n", v->run, v->node, v->nodes,
             v->epoch + 1, v->world, when);
}

static void put_rank(text *t, const flight_view *v, const flight_who *w) {
    text_put(t, "%s%s%s\n", w->who, *w->ended ? " " : "", w->ended);
    if (*w->doing) text_put(t, "    %-8s %s, since %.3f s\n", "task", w->doing, w->doing_s);
    for (int i = w->first; i < w->first + w->lines; i++) {
        const flight_line *l = &v->line[i];
        if (l->at.op == FLIGHT_NONE || l->at.world < 2) continue;
        text_put(t, "    %-8s ", flight_state_name((flight_state)l->at.state));
        flight_put_call(t, l);
        text_put(t, ", since %.3f s\n", l->since_s);
    }
}

void flight_put_where(text *t, const flight_view *v) {
    text_put(t, "where each rank was; seconds up to the failure\n");
    for (int i = 0; i < v->ranks; i++) put_rank(t, v, &v->who[i]);
}

// The ranks of a communicator, or its id where it is closed by now.
static void put_comm(text *t, const flight_view *v, const flight_who *w, uint32_t id) {
    for (int i = w->first; i < w->first + w->lines; i++)
        if (v->line[i].at.id == id) {
            flight_put_ranks(t, v->line[i].at.member);
            if (v->line[i].at.channel) text_put(t, " (channel %" PRIu32 ")", v->line[i].at.channel);
            return;
        }
    text_put(t, "%08" PRIx32, id);
}

static void put_call(text *t, const flight_view *v, const flight_who *w, const flight_seen *x, uint64_t moment_ns) {
    text_put(t, "%12.6f", ((double)x->began_ns - (double)moment_ns) * 1e-9);
    if (x->op == FLIGHT_PHASE) text_put(t, " %12s  phase   ", "");
    else if (x->state == FLIGHT_IN) text_put(t, " %12s  %-6s  ", "-", "in");
    else text_put(t, " %12.3f  %-6s  ", (double)x->took_us * 1e-3, flight_state_name((flight_state)x->state));
    if (x->op != FLIGHT_PHASE) {
        text_put(t, "%-14s #%-7" PRIu32 " %10" PRIu64 "  ", flight_op_name((flight_op)x->op), x->number, x->bytes);
        put_comm(t, v, w, x->comm);
        if (x->op == FLIGHT_EXCHANGE) text_put(t, ", with rank %d%s", x->peer, x->peers > 1 ? " and others" : "");
        text_put(t, "  ");
    }
    flight_put_phase(t, x->what ? x->what : "", x->part, x->step);
    text_put(t, "\n");
}

static void put_calls(text *t, const flight_view *v, const flight_who *w, const flight_log *log, uint64_t moment_ns) {
    text_put(t, "\n%s: its last %d calls and phases, newest last\n", w->who, log->n);
    text_put(t, "%12s %12s  %-6s  %-14s %-8s %10s  %s\n", "seconds", "took ms", "how", "call", "number", "bytes",
             "of; while");
    for (int i = 0; i < log->n; i++) put_call(t, v, w, &log->call[i], moment_ns);
}

// --- for a program ---------------------------------------------------------------------------------------------------

static void put_mask(text *t, const uint64_t *mask) {
    text_put(t, "\t");
    for (int i = FLIGHT_WORDS - 1, began = 0; i >= 0; i--) {
        if (!began && !mask[i] && i) continue;
        text_put(t, began++ ? "%016" PRIx64 : "%" PRIx64, mask[i]);
    }
}

static void put_line(text *t, const flight_line *l) {
    const flight_standing *a = &l->at;
    text_put(t, "on\t%d\t%" PRIx32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%d\t%d\t%.17g\t%" PRIu64,
             l->rank, a->id, a->world, a->channel, a->calls, a->exchanges, a->op, a->state, l->since_s, a->bytes);
    text_put(t, "\t%" PRId32 "\t%" PRId32, a->step, a->part);
    put_mask(t, a->member);
    put_mask(t, a->peer);
    text_put(t, "\t");
    put_field(t, l->what);
    text_put(t, "\n");
}

static void put_state(text *t, const flight_view *v) {
    text_put(t, "\nFor lockstep flight:\n");
    for (int i = 0; i < v->ranks; i++) {
        const flight_who *w = &v->who[i];
        text_put(t, "rank\t%d\t%d\t%d\t%.17g\t", w->rank, w->node, w->failed, w->doing_s);
        put_field(t, w->who), text_put(t, "\t");
        put_field(t, w->ended), text_put(t, "\t");
        put_field(t, w->doing), text_put(t, "\n");
        for (int k = w->first; k < w->first + w->lines; k++) put_line(t, &v->line[k]);
    }
}

void flight_write(text *t, const flight_view *v, const flight_log *log, uint64_t moment_ns) {
    put_head(t, v);
    flight_verdict(v, t);
    text_put(t, "\n");
    flight_put_where(t, v);
    for (int i = 0; log && i < v->ranks; i++) put_calls(t, v, &v->who[i], &log[i], moment_ns);
    put_state(t, v);
}

// --- reading ---------------------------------------------------------------------------------------------------------

// The fields of a line, one after the other.
typedef struct fields {
    char *at;  // NULL: there are no more
    bool bad;  // one was missing, or not what was expected
} fields;

static const char *next(fields *f) {
    char *field = f->at, *tab = field ? strchr(field, '\t') : NULL;
    if (!field) return f->bad = true, "";
    if (tab) *tab = 0;
    f->at = tab ? tab + 1 : NULL;
    return field;
}

static int64_t whole(fields *f, int64_t least, int64_t most) {
    const char *s = next(f);
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    if (end == s || *end || errno || n < least || n > most) return f->bad = true, least;
    return n;
}

static uint64_t hexadecimal(fields *f, const char *s, size_t digits) {
    uint64_t n = 0;
    f->bad |= digits == 0 || digits > 16;
    for (size_t i = 0; i < digits && !f->bad; i++) {
        const char *of = "0123456789abcdef", *at = s[i] ? strchr(of, s[i]) : NULL;
        if (!at) f->bad = true;
        else n = n << 4 | (uint64_t)(at - of);
    }
    return n;
}

static double real(fields *f) {
    const char *s = next(f);
    char *end;
    double x = strtod(s, &end);
    if (end == s || *end || !(fabs(x) < 1e12)) return f->bad = true, 0;
    return x;
}

static void mask(fields *f, uint64_t out[FLIGHT_WORDS]) {
    const char *s = next(f);
    size_t n = strlen(s);
    if (n == 0 || n > 16 * FLIGHT_WORDS) f->bad = true;
    for (int i = 0; i < FLIGHT_WORDS && n && !f->bad; i++) {
        size_t digits = n < 16 ? n : 16;
        n -= digits;
        out[i] = hexadecimal(f, s + n, digits);
    }
}

static void word(fields *f, char *dst, size_t room) {
    const char *s = next(f);
    size_t n = strlen(s);
    if (n >= room) f->bad = true;
    else
        for (size_t i = 0; i <= n; i++) dst[i] = i < n ? plain(s[i]) : 0;
}

static err_t read_about(flight_view *v, fields *f) {
    v->node = (int)whole(f, 0, FLIGHT_RANKS - 1);
    v->nodes = (int)whole(f, 1, FLIGHT_RANKS);
    v->world = (int)whole(f, 1, FLIGHT_RANKS);
    v->epoch = (uint32_t)whole(f, 0, UINT32_MAX);
    v->time = whole(f, 0, INT64_C(1) << 40);
    word(f, v->run, sizeof v->run);
    return ERR_OK;
}

static err_t read_rank(flight_view *v, fields *f) {
    flight_who w = {0};
    w.rank = (int)whole(f, 0, FLIGHT_RANKS - 1);
    w.node = (int)whole(f, 0, FLIGHT_RANKS - 1);
    w.failed = whole(f, 0, 1) != 0;
    w.doing_s = real(f);
    word(f, w.who, sizeof w.who);
    word(f, w.ended, sizeof w.ended);
    word(f, w.doing, sizeof w.doing);
    return f->bad ? ERR_OK : flight_view_rank(v, &w);
}

static err_t read_line(flight_view *v, fields *f) {
    flight_line l = {.rank = (int)whole(f, 0, FLIGHT_RANKS - 1)};
    flight_standing *a = &l.at;
    const char *id = next(f);
    a->id = (uint32_t)hexadecimal(f, id, strlen(id) > 8 ? 0 : strlen(id));
    a->world = (uint32_t)whole(f, 1, FLIGHT_RANKS);
    a->channel = (uint32_t)whole(f, 0, COMM_CHANNELS);
    a->calls = (uint32_t)whole(f, 0, UINT32_MAX);
    a->exchanges = (uint32_t)whole(f, 0, UINT32_MAX);
    a->op = (int)whole(f, 0, FLIGHT_OPS_COUNT - 1);
    a->state = (int)whole(f, 0, FLIGHT_STATES - 1);
    l.since_s = real(f);
    a->bytes = (uint64_t)whole(f, 0, INT64_MAX);
    a->step = (int32_t)whole(f, -1, INT32_MAX);
    a->part = (int32_t)whole(f, -1, INT32_MAX);
    mask(f, a->member);
    mask(f, a->peer);
    word(f, l.what, sizeof l.what);
    return f->bad ? ERR_OK : flight_view_line(v, &l);
}

static const struct {
    const char *begins;
    err_t (*read)(flight_view *v, fields *f);
} kinds[] = {{"about\t", read_about}, {"rank\t", read_rank}, {"on\t", read_line}};

static err_t read_one(flight_view *v, char *s, bool *about) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t n = strlen(kinds[k].begins);
        if (strncmp(s, kinds[k].begins, n) != 0) continue;
        fields f = {.at = s + n};
        *about |= k == 0;
        TRY(kinds[k].read(v, &f));
        if (f.bad || f.at)
            return err_set(ERR_DATA, "expected the fields of comm/flight_text.h after \"%.*s\"", (int)n - 1,
                           kinds[k].begins);
    }
    return ERR_OK;
}

err_t flight_read(flight_view *v, const char *path, char *bytes, size_t n) {
    bool about = false;
    int number = 1;
    if (strlen(bytes) != n || strncmp(bytes, first_line, sizeof first_line - 1) != 0 ||
        bytes[sizeof first_line - 1] != '\n')
        return err_set(ERR_DATA, "%s: no flight recording: expected \"%s\" as its first line", path, first_line);
    for (char *s = bytes, *end; s; s = end, number++) {
        end = strchr(s, '\n');
        if (end) *end++ = 0;
        if (read_one(v, s, &about) != ERR_OK) return err_prefix("%s:%d", path, number);
    }
    return about && v->ranks ? ERR_OK : err_set(ERR_DATA, "%s: it ends too early: no rank is in it", path);
}
