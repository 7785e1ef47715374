// base/fault.c: see base/fault.h.
#include "base/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const point_names[FAULT_POINTS] = {FAULT_WORDS(WORD_NAME)};

static const char *skip(const char *p) { return p + strspn(p, " \t,"); }

// ":2": a rank; nothing: all. False: something else.
static bool parse_rank(char **at, int *rank) {
    *rank = -1;
    if (**at != ':') return true;
    char *from = *at + 1;
    long n = strtol(from, at, 10);
    *rank = (int)n;
    return *at > from && n >= 0 && n < 1 << 20;
}

static err_t parse_one(fault_list *list, const char **text) {
    const char *p = *text;
    for (int i = 0; i < FAULT_POINTS; i++) {
        size_t n = strlen(point_names[i]);
        if (strncmp(p, point_names[i], n) != 0 || p[n] != '@') continue;
        char *end;
        long first = strtol(p + n + 1, &end, 10), count = 1;
        int only;
        if (*end == 'x') count = strtol(end + 1, &end, 10);
        // strchr also finds the final NUL
        if (!parse_rank(&end, &only) || first < 1 || count < 1 || !strchr(" \t,", *end)) break;
        if (list->first[i])
            return err_set(ERR_CONFIG, "fault list: %s stands there twice, and only one of them would happen",
                           point_names[i]);
        list->first[i] = first;
        list->count[i] = count;
        list->only[i] = only;
        *text = skip(end);
        return ERR_OK;
    }
    return err_set(
        ERR_CONFIG,
        "fault list \"%s\": expected point@first or point@firstxcount, with :rank for one rank alone, comma between; "
        "points:" FAULT_WORDS(WORD_TEXT),
        p);
}

err_t fault_parse(fault_list *list, const char *text) {
    for (int i = 0; i < FAULT_POINTS; i++) {
        atomic_init(&list->seen[i], 0);
        list->first[i] = list->count[i] = 0;
    }
    list->rank = -1, list->shared = NULL;
    const char *p = skip(text);
    while (*p) TRY(parse_one(list, &p));
    return ERR_OK;
}

bool fault_hit(fault_list *list, fault_point point) {
    if (!list || !list->first[point]) return false;
    if (list->only[point] >= 0 && list->only[point] != list->rank) return false;
    atomic_long *seen = list->shared ? list->shared : list->seen;
    long pass = atomic_fetch_add(&seen[point], 1) + 1;
    return pass >= list->first[point] && pass - list->first[point] < list->count[point];
}

void fault_kill(fault_list *list, fault_point point) {
    if (fault_hit(list, point)) kill(getpid(), SIGKILL);
}
