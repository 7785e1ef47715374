// trainer/config/nodes_of.c: see trainer/config/nodes_of.h.
#include "trainer/config/nodes_of.h"

#include "base/io.h"
#include "trainer/config/cluster_parse.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The list as it grows. An entry is a name, perhaps with one range, and a number of ranks.
typedef struct list {
    char *text;
    size_t room, length;
    int ranks;
    bool full;
} list;

static err_t add(list *l, const char *name, size_t n, int ranks) {
    char tail[16];
    int more = snprintf(tail, sizeof tail, ":%d", ranks);
    l->full = l->length + 1 + n + (size_t)more >= l->room;
    if (l->full)
        return err_set(ERR_CONFIG,
                       "the list of nodes is longer than %zu letters: write it as ranges, such as node[01-64]:%d",
                       l->room - 1, ranks);
    if (l->length) l->text[l->length++] = ',';
    memcpy(l->text + l->length, name, n);
    memcpy(l->text + l->length + n, tail, (size_t)more + 1);
    l->length += n + (size_t)more;
    return ERR_OK;
}

// --- Slurm -----------------------------------------------------------------------------------------------------------

static err_t wrong_list(const char *text) {
    return err_set(ERR_CONFIG,
                   "SLURM_JOB_NODELIST=%.200s in the environment: expected names such as gpu[01-04,07],login", text);
}

enum { NAME = 512 };

static err_t add_slurm(list *l, const char *before, const char *item, size_t n);

// "01-04" or "07" of the brackets between `before` and the rest of an item. With further brackets each number is
// written out, since an entry has one range.
static err_t add_part(list *l, const char *before, const char *part, size_t n, const char *rest, size_t rests) {
    char name[NAME];
    const char *p = part;
    int from = cluster_number(&p), to = from, width = (int)(p - part);
    if (from >= 0 && p < part + n && *p == '-') p++, to = cluster_number(&p);
    if (from < 0 || to < from || p != part + n) return ERR_CONFIG;
    bool more = memchr(rest, '[', rests) != NULL;
    for (int k = from; more && k <= to; k++) {
        if (snprintf(name, sizeof name, "%s%0*d", before, *part == '0' ? width : 1, k) >= NAME) return ERR_CONFIG;
        TRY(add_slurm(l, name, rest, rests));
    }
    if (more) return ERR_OK;
    const char *format = memchr(part, '-', n) ? "%s[%.*s]%.*s" : "%s%.*s%.*s";
    int length = snprintf(name, sizeof name, format, before, (int)n, part, (int)rests, rest);
    return length < NAME ? add(l, name, (size_t)length, l->ranks) : ERR_CONFIG;
}

// An item of Slurm's list after what is known of its name: gpu[01-04,07] is gpu[01-04] and gpu07.
static err_t add_slurm(list *l, const char *before, const char *item, size_t n) {
    const char *open = memchr(item, '[', n), *close = open ? memchr(open, ']', n - (size_t)(open - item)) : NULL;
    char name[NAME];
    int length = snprintf(name, sizeof name, "%s%.*s", before, (int)(open ? open - item : (long)n), item);
    if (length <= 0 || length >= NAME || (open && !close)) return ERR_CONFIG;
    if (!open) return add(l, name, (size_t)length, l->ranks);
    for (const char *p = open + 1, *end; p <= close; p = end + 1) {
        for (end = p; end < close && *end != ','; end++) {}
        TRY(add_part(l, name, p, (size_t)(end - p), close + 1, n - (size_t)(close + 1 - item)));
    }
    return ERR_OK;
}

// "8", or "h100:8", as SLURM_GPUS_PER_NODE has it; 1 where Slurm says nothing.
static int slurm_ranks(void) {
    const char *said = getenv("SLURM_GPUS_PER_NODE"), *colon = said ? strrchr(said, ':') : NULL;
    const char *p = colon ? colon + 1 : said;
    int n = p ? cluster_number(&p) : -1;
    return n > 0 && !*p ? n : 1;
}

static err_t of_slurm(list *l, const char *ranks) {
    const char *from = getenv("SLURM_JOB_NODELIST");
    if (!from || !*from)
        return err_set(ERR_CONFIG,
                       "nodes = slurm, and this process is in no job of Slurm's: SLURM_JOB_NODELIST is not in its "
                       "environment. Start it by srun, one task a node");
    l->ranks = *ranks ? cluster_number(&ranks) : slurm_ranks();
    if (l->ranks < 1 || *ranks) return err_set(ERR_CONFIG, "expected slurm or slurm:8, eight ranks on each node");
    for (const char *p = from, *end; p; p = *end ? end + 1 : NULL) {
        int depth = 0;
        for (end = p; *end && (depth || *end != ','); end++) depth += *end == '[' ? 1 : *end == ']' ? -1 : 0;
        err_t rc = add_slurm(l, "", p, (size_t)(end - p));
        if (rc != ERR_OK) return l->full ? rc : wrong_list(from);
    }
    return ERR_OK;
}

// --- a file ----------------------------------------------------------------------------------------------------------

static const char *skip_spaces(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\r') p++;
    return p;
}

// "host", "host:8", "[address]:8" or "host slots=8". No host: nothing.
static err_t add_line(list *l, const char *path, int number, char *line) {
    char *comment = strchr(line, '#');
    if (comment) *comment = 0;
    const char *host = skip_spaces(line), *end = host;
    while (*end && !isspace((unsigned char)*end)) end++;
    const char *rest = skip_spaces(end), *p = rest;
    int ranks = 1;
    if (host == end) return ERR_OK;
    bool slots = strncmp(rest, "slots=", 6) == 0;
    if (slots) p += 6, ranks = cluster_number(&p);
    if (ranks < 1 || *skip_spaces(p))
        return err_set(ERR_CONFIG, "%s:%d: expected host, host:8 or host slots=8, found `%.80s`", path, number, host);
    const char *colon = memrchr(host, ':', (size_t)(end - host)), *after = colon ? colon + 1 : NULL;
    if (colon && *host == '[' && memchr(colon, ']', (size_t)(end - colon))) after = NULL;  // of an address in brackets
    int own = after ? cluster_number(&after) : 1;
    if (after && (own < 1 || after != end || slots))
        return err_set(ERR_CONFIG, "%s:%d: expected host, host:8 or host slots=8, found `%.80s`", path, number, host);
    return add(l, host, (size_t)((colon && after ? colon : end) - host), after ? own : ranks);
}

static err_t of_file(list *l, const char *path) {
    char *text, *line, *next;
    size_t size;
    int number = 1;
    TRY(io_read_file(path, 1 << 20, &text, &size));
    err_t rc = strlen(text) == size ? ERR_OK : err_set(ERR_CONFIG, "%s: a NUL byte is in it", path);
    for (line = text; rc == ERR_OK && line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        rc = add_line(l, path, number, line);
    }
    free(text);
    if (rc == ERR_OK && !l->length) return err_set(ERR_CONFIG, "%s: no host is in it", path);
    return rc;
}

err_t nodes_of(char *nodes, size_t room) {
    bool slurm = strcmp(nodes, "slurm") == 0 || strncmp(nodes, "slurm:", 6) == 0,
         file = strncmp(nodes, "file:", 5) == 0;
    if (!slurm && !file) return ERR_OK;
    char *text = calloc(1, room);
    if (!text) return err_set(ERR_INTERNAL, "no memory for a list of nodes");
    list l = {.text = text, .room = room};
    err_t rc = slurm ? of_slurm(&l, nodes[5] ? nodes + 6 : "") : of_file(&l, nodes + 5);
    if (rc == ERR_OK) memcpy(nodes, text, l.length + 1);
    free(text);
    return rc;
}
