// comm/team/settings.c: see comm/team/settings.h.
#include "comm/team/settings.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { LISTED = 4, VALUE_SHOWN = 60, PIECE = FRAME_TEXT - 1 };
static const double answer_s = 3;

// --- in what they differ ---------------------------------------------------------------------------------------------

typedef struct line {
    const char *key, *value;
    int key_length, value_length;
} line;

// Takes one line off the text; false at its end.
static bool next_line(const char **text, line *l) {
    if (!**text) return false;
    size_t n = strcspn(*text, "\n"), k = strcspn(*text, "=\n");
    bool valued = k < n;
    *l = (line){*text, *text + k + valued, (int)k, (int)(n - k - valued)};
    *text += n + ((*text)[n] == '\n');
    return true;
}

static bool same(const char *a, int na, const char *b, int nb) { return na == nb && memcmp(a, b, (size_t)na) == 0; }

// Printable, and cut where it is long.
static const char *shown(char dst[VALUE_SHOWN + 4], const char *src, int n) {
    int i = 0;
    for (; i < n && i < VALUE_SHOWN; i++) dst[i] = src[i] >= 32 && src[i] < 127 ? src[i] : '?';
    strcpy(dst + i, i < n ? "..." : "");
    return n ? dst : "(empty)";
}

// "[optimizer] lr" of optimizer.lr
static const char *key_text(char dst[VALUE_SHOWN + 8], const line *l) {
    char room[VALUE_SHOWN + 4];
    const char *name = shown(room, l->key, l->key_length), *dot = strchr(name, '.');
    if (dot) snprintf(dst, VALUE_SHOWN + 8, "[%.*s] %s", (int)(dot - name), name, dot + 1);
    else snprintf(dst, VALUE_SHOWN + 8, "%s", name);
    return dst;
}

// Builds that are the same have the same keys in the same order; only another [model] type has others, and then that
// key comes before them.
bool settings_differ(char *dst, size_t room, const char *theirs, const char *ours) {
    char key[VALUE_SHOWN + 8], a[VALUE_SHOWN + 4], b[VALUE_SHOWN + 4];
    text differ = {.at = dst, .room = room};
    int found = 0;
    dst[0] = 0;
    for (line t, o; next_line(&theirs, &t) && next_line(&ours, &o) && same(t.key, t.key_length, o.key, o.key_length);) {
        if (same(t.value, t.value_length, o.value, o.value_length) || ++found > LISTED) continue;
        text_put(&differ, "%s%s = %s and %s", differ.n ? "; " : "", key_text(key, &t),
                 shown(a, t.value, t.value_length), shown(b, o.value, o.value_length));
    }
    if (found > LISTED) text_put(&differ, "; and %d more", found - LISTED);
    return found > 0;
}

// --- on the way ------------------------------------------------------------------------------------------------------

static bool wait_for(const conn *c, short events, double until) {
    double left = until - clock_now();
    return left > 0 &&
           (poll(&(struct pollfd){.fd = c->fd, .events = events}, 1, (int)(1e3 * left) + 1) >= 0 || errno == EINTR);
}

static bool send_frame(conn *c, const frame *f, double until) {
    while (!conn_queue(c, f)) {
        if (c->fd < 0 || !wait_for(c, POLLOUT, until)) return false;
        conn_flush(c);
    }
    conn_flush(c);
    return true;
}

void settings_tell(conn *c, const char *ours) {
    double until = clock_now() + answer_s;
    size_t left = strnlen(ours, SETTINGS_MAX - 1);
    do {
        size_t n = left < PIECE ? left : PIECE;
        frame f = {.type = FRAME_SETTINGS, .code = n == left};
        memcpy(f.text, ours, n);
        if (!send_frame(c, &f, until)) return;
        ours += n, left -= n;
    } while (left);
    while (c->out && c->fd >= 0 && wait_for(c, POLLOUT, until)) conn_flush(c);
}

bool settings_ask(conn *c, char *theirs) {
    double until = clock_now() + answer_s;
    size_t have = 0;
    frame f;
    if (!send_frame(c, &(frame){.type = FRAME_ASK}, until)) return false;
    for (;;) {
        conn_news news = conn_read(c, &f);
        if (news == CONN_ENDED || news == CONN_FORGED) return false;
        if (news == CONN_NOTHING) {
            if (!wait_for(c, POLLIN, until)) return false;
            continue;
        }
        size_t n = strlen(f.text);
        if (f.type != FRAME_SETTINGS || have + n >= SETTINGS_MAX) return false;
        memcpy(theirs + have, f.text, n + 1);
        have += n;
        if (f.code) return true;
        if (clock_now() >= until) return false;
    }
}
