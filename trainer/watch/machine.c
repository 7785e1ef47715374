// trainer/watch/machine.c: see trainer/watch/machine.h.
#include "trainer/watch/machine.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

// Of what was known: a mean of nothing is not known.
typedef struct mean {
    double sum;
    int count;
} mean;

typedef struct machine_rank {
    mean watts, celsius, mhz, utilisation, starved;
    double watts_max;
    unsigned limited;  // bits of all looks
    bool limits_known;
} machine_rank;

struct machine {
    double every_s, due;  // due: by the state's monotonic clock; 0: not begun
    int locals, looks;
    mean read, written, cpu;
    machine_rank *rank;
    char *line;
    size_t room;
};

err_t machine_open(machine **out, int locals, double every_s) {
    *out = NULL;
    machine *m = calloc(1, sizeof *m);
    if (m) {
        *m = (machine){.every_s = every_s, .locals = locals, .room = 1024 + (size_t)locals * 384};
        m->rank = calloc((size_t)locals, sizeof *m->rank);
        m->line = malloc(m->room);
    }
    if (m && m->rank && m->line) return *out = m, ERR_OK;
    machine_close(m);
    return err_set(ERR_INTERNAL, "no memory for the sums of %d ranks", locals);
}

void machine_close(machine *m) {
    if (m) free(m->rank), free(m->line);
    free(m);
}

static void add(mean *m, double x) {
    if (!isfinite(x)) return;
    m->sum += x;
    m->count++;
}

static double mean_of(const mean *m) { return m->count ? m->sum / m->count : NAN; }

static void add_rank(machine_rank *m, const watch_rank *r) {
    double watts = r->sensors.watts;
    add(&m->watts, watts);
    add(&m->celsius, r->sensors.celsius);
    add(&m->mhz, r->sensors.mhz);
    add(&m->utilisation, r->utilisation);
    add(&m->starved, r->starved);
    if (isfinite(watts) && (m->watts.count == 1 || watts > m->watts_max)) m->watts_max = watts;
    if (r->sensors.limited == LIMITED_UNKNOWN) return;
    m->limits_known = true;
    m->limited |= r->sensors.limited;
}

static double cores_of(const watch_state *s) {
    double all = 0;
    for (int i = 0; i < s->locals; i++) all += s->rank[i].cpu;
    return all;
}

static void put_rank(text *t, const machine_rank *m, const watch_rank *r) {
    char why[LIMITED_TEXT];
    text_put(t, "{\"rank\":%d", r->place.rank);
    text_real(t, "watts", mean_of(&m->watts), 5);
    text_real(t, "watts_max", m->watts.count ? m->watts_max : NAN, 5);
    text_real(t, "celsius", mean_of(&m->celsius), 4);
    text_real(t, "mhz", mean_of(&m->mhz), 5);
    text_real(t, "utilisation", mean_of(&m->utilisation), 3);
    text_real(t, "starved", mean_of(&m->starved), 3);
    text_whole(t, "resident", r->resident);
    text_whole(t, "device_used", r->device_used);
    text_word(t, "limited", m->limits_known ? device_limited_text(m->limited, why) : NULL);
    text_put(t, "}");
}

static size_t make_line(machine *m, const watch_state *s) {
    text t = {.at = m->line, .room = m->room};
    text_put(&t, "{\"t\":\"machine\",\"time\":%.3f", s->time);
    text_whole(&t, "node", s->node);
    text_word(&t, "host", s->host);
    text_whole(&t, "step", s->step);
    text_whole(&t, "disk_free", s->disk_free);
    text_real(&t, "disk_read_per_s", mean_of(&m->read), 6);
    text_real(&t, "disk_written_per_s", mean_of(&m->written), 6);
    text_real(&t, "cpu", mean_of(&m->cpu), 4);
    text_put(&t, ",\"ranks\":[");
    for (int i = 0; i < m->locals; i++) {
        if (i) text_put(&t, ",");
        put_rank(&t, &m->rank[i], &s->rank[i]);
    }
    text_put(&t, "]}\n");
    return text_bytes(&t);
}

static void begin_again(machine *m, double now) {
    for (int i = 0; i < m->locals; i++) m->rank[i] = (machine_rank){0};
    m->read = m->written = m->cpu = (mean){0};
    m->looks = 0;
    m->due = now + m->every_s;
}

void machine_add(machine *m, const watch_state *s, bool last, const char **line, size_t *bytes) {
    *line = NULL;
    if (m->due == 0) begin_again(m, s->monotonic);
    m->looks++;
    add(&m->read, s->disk_read_per_s);
    add(&m->written, s->disk_written_per_s);
    add(&m->cpu, cores_of(s));
    for (int i = 0; i < m->locals; i++) add_rank(&m->rank[i], &s->rank[i]);
    bool due = s->monotonic + 0.5 * s->every_s >= m->due;  // the look that is nearest
    if (!due && !(last && m->cpu.count)) return;
    *bytes = make_line(m, s);
    if (*bytes) *line = m->line;
    begin_again(m, s->monotonic);
}
