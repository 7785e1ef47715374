// trainer/report/settings.c: the config.ini of a run, as `lockstep config` prints it:
//
//   lanes = 2                            ; bits   default, chosen
//
// It may be another version's: keys that this one lacks are shown, and nothing is refused. The comment of a long text
// is on the next line.
#include "trainer/config/table.h"
#include "trainer/report/runlog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The value without quotes and escapes into dst; returns what follows it.
static const char *unquote(const char *at, char *dst, size_t room) {
    size_t n = 0;
    if (*at != '"') {
        size_t all = strcspn(at, ";#"), end = all;
        while (end && (at[end - 1] == ' ' || at[end - 1] == '\t' || at[end - 1] == '\r')) end--;
        snprintf(dst, room, "%.*s", (int)end, at);
        return at + all;
    }
    for (at++; *at && *at != '"'; at++) {
        char c = *at;
        if (c == '\\' && at[1]) {
            at++;
            c = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
        }
        if (n + 1 < room) dst[n++] = c;
    }
    dst[n] = 0;
    return *at ? at + 1 : at;
}

static bool is_default(const setting *k, const char *value) {
    char *end, *other;
    if (strcmp(value, k->fallback) == 0) return true;
    if (k->type != KEY_REAL && k->type != KEY_INT) return false;
    double a = strtod(value, &end), b = strtod(k->fallback, &other);
    return *value && *end == 0 && *k->fallback && *other == 0 && a == b;
}

// Which architecture's keys are meant.
static int type_of(const char *value) {
    char word[CONFIG_WORD];
    int row = config_find(NULL, "model", "type");
    for (int i = 0; row >= 0 && config_word(config_key(row)->words, i, word); i++)
        if (strcmp(word, value) == 0) return i;
    return 0;
}

static void take_key(runlog *r, config *like, const char *section, char *line) {
    char *equals = strchr(line, '='), *end = equals;
    if (!equals || r->settings == RUNLOG_SETTINGS) return;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *end = 0;
    if (!*line || strlen(line) >= KEY_WORD_MAX) return;
    runlog_setting *s = &r->setting[r->settings++];
    *s = (runlog_setting){.class = CLASS_LOCAL, .differs = true};
    snprintf(s->name, sizeof s->name, "%s.%s", section, line);
    equals++;
    const char *after = unquote(equals + strspn(equals, " \t"), s->value, sizeof s->value);
    if (strcmp(s->name, "model.type") == 0) like->model.type = type_of(s->value);
    int row = config_find(like, section, line);
    if (row >= 0) {
        s->fallback = config_key(row)->fallback, s->class = config_key(row)->class;
        s->differs = !is_default(config_key(row), s->value);
    }
    if (strstr(after, ", chosen")) s->differs = false;
}

// "# lockstep 0.1.0 c6a5aac  config HASH  data HASH"
// "# machine NAME  device cpu avx512 x2 threads"
static void take_about(runlog *r, const char *line) {
    static const char machine[] = "machine ", device[] = "  device ";
    const char *at = line + strspn(line, "# "), *on = strstr(at, device);
    if (!r->about[0] && strncmp(at, "lockstep ", 9) == 0) snprintf(r->about, sizeof r->about, "%s", at);
    if (r->computer[0] || !on || strncmp(at, machine, sizeof machine - 1) != 0) return;
    at += sizeof machine - 1;
    snprintf(r->computer, sizeof r->computer, "%.*s", (int)(on - at), at);
    snprintf(r->runs_on, sizeof r->runs_on, "%s", on + sizeof device - 1);
}

void runlog_take_settings(runlog *r, char *text) {
    char section[KEY_WORD_MAX] = "", *rest = text;
    config *like = calloc(1, sizeof *like);  // of which only the model's type is read
    r->settings = 0, r->about[0] = r->computer[0] = r->runs_on[0] = 0;
    for (char *line; like && (line = strsep(&rest, "\n")) != NULL;) {
        char *at = line + strspn(line, " \t"), *close;
        if (*at == '#') take_about(r, at);
        else if (*at == ';' && r->settings && strstr(at, ", chosen")) r->setting[r->settings - 1].differs = false;
        else if (*at == '[' && (close = strchr(at, ']')) != NULL)
            snprintf(section, sizeof section, "%.*s", (int)(close - at - 1), at + 1);
        else if (*at && *at != ';') take_key(r, like, section, at);
    }
    free(like);
}

const runlog_setting *runlog_find(const runlog *r, const char *name) {
    for (int i = 0; i < r->settings; i++)
        if (strcmp(r->setting[i].name, name) == 0) return &r->setting[i];
    return NULL;
}

double runlog_number(const runlog *r, const char *name) {
    const runlog_setting *s = runlog_find(r, name);
    char *end = NULL;
    double x = s ? strtod(s->value, &end) : NAN;
    return end && end > s->value && *end == 0 ? x : NAN;
}
