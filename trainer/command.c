// trainer/command.c: see trainer/command.h.
#include "trainer/command.h"

#include "base/edits.h"

#include <stdlib.h>
#include <string.h>

static const verb_option override = {"-o", "SECTION.KEY=VALUE",
                                     "set a key, in place of what the files say; may be repeated: the last one counts"};

int command_verb(const char *name) {
    for (int i = 0; i < VERB_COUNT; i++)
        if (strcmp(verb_pages[i].name, name) == 0) return i;
    return -1;
}

const char *command_nearest(const char *name) {
    const char *nearest = NULL;
    int least = EDITS_NAME;
    for (int i = 0; i < VERB_COUNT; i++) {
        int edits = edits_between(name, verb_pages[i].name);
        if (edits < least) least = edits, nearest = verb_pages[i].name;
    }
    return edits_near(name, least) ? nearest : NULL;
}

// The option of that name, NULL: the verb has none.
static const verb_option *find_option(const verb_page *p, const char *name) {
    if (p->files && strcmp(name, override.name) == 0) return &override;
    for (int i = 0; i < VERB_OPTIONS && p->option[i].name; i++)
        if (strcmp(p->option[i].name, name) == 0) return &p->option[i];
    return NULL;
}

// Is the next argument its value? One that may be left out is no path.
static bool takes_next(const verb_option *o, const char *next) {
    if (!o || !o->value) return false;
    return o->value[0] != '[' || (next && *next != '-' && !strpbrk(next, "/."));
}

bool command_asks_help(const verb_page *p, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        const verb_option *o = find_option(p, argv[i]);
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
        i += takes_next(o, i + 1 < argc ? argv[i + 1] : NULL);
    }
    return false;
}

static void print_option(const verb_option *o, FILE *out) {
    int n = fprintf(out, "  %s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    fprintf(out, "%*s%s\n", n < 24 ? 24 - n : 2, "", o->does);
}

void command_print_help(const verb_page *p, FILE *out) {
    bool has = p->files || p->option[0].name, placed = strstr(p->usage, "[OPTION]");
    fprintf(out, "usage: lockstep %s %s%s\n\n%s\n", p->name, p->usage, has && !placed ? " [OPTION]..." : "", p->does);
    for (int i = 0; i < VERB_OPTIONS && p->option[i].name; i++) print_option(&p->option[i], out);
    if (p->files) print_option(&override, out);
    if (has) fputc('\n', out);
    fprintf(out, "Example:\n  %s\n", p->example);
}

// --- arguments -------------------------------------------------------------------------------------------------------

// The option of the verb that was probably meant, NULL: none is near.
static const char *nearest_option(const verb_page *p, const char *name) {
    const char *nearest = NULL;
    int least = EDITS_NAME;
    for (int i = 0; i < VERB_OPTIONS && p->option[i].name; i++) {
        int edits = edits_between(name, p->option[i].name);
        if (edits < least) least = edits, nearest = p->option[i].name;
    }
    return edits_near(name, least) ? nearest : NULL;
}

static err_t no_option(const verb_page *p, const char *name) {
    const char *nearest = nearest_option(p, name);
    return err_set(ERR_USAGE, "%s: no such option here%s%s%s; `lockstep %s --help` lists them", name,
                   nearest ? " (did you mean `" : "", nearest ? nearest : "", nearest ? "`?)" : "", p->name);
}

static err_t take_option(command *c, int argc, char **argv, int *at) {
    const verb_option *o = find_option(c->page, argv[*at]);
    if (!o) return no_option(c->page, argv[*at]);
    const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    bool takes = takes_next(o, next);
    if (takes && !next) return err_set(ERR_USAGE, "%s: expected a value after it, %s", argv[*at], o->value);
    const char *value = takes ? next : o->value ? "" : o->name;
    *at += takes;
    if (o == &override) c->overrides[c->override_count++] = value;
    else c->value[o - c->page->option] = value;
    return ERR_OK;
}

static err_t take_all(command *c, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) TRY(take_option(c, argc, argv, &i));
        else c->words[c->count++] = argv[i];
    }
    return ERR_OK;
}

err_t command_parse(command *out, const verb_page *p, int argc, char **argv) {
    *out = (command){.page = p, .words = calloc(2 * (size_t)argc + 1, sizeof *out->words)};
    if (!out->words) return err_set(ERR_INTERNAL, "no memory for %d arguments", argc);
    out->overrides = out->words + argc;
    err_t rc = take_all(out, argc, argv);
    if (rc != ERR_OK) command_free(out);
    return rc;
}

void command_free(command *c) {
    free(c->words);
    *c = (command){0};
}

const char *command_value(const command *c, const char *option) {
    for (int i = 0; i < VERB_OPTIONS && c->page->option[i].name; i++)
        if (strcmp(c->page->option[i].name, option) == 0) return c->value[i];
    return NULL;
}
