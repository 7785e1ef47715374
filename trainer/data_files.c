// trainer/data_files.c: see trainer/data_files.h.
#include "trainer/data_files.h"

#include "data/click/tools.h"
#include "data/image/tools.h"
#include "data/text/tools.h"

#include <string.h>

static err_t info_of(const char *path, source_format from, FILE *out) {
    if (from == FORMAT_AUTO && image_tools_know(path)) return image_tools_info(path, out);
    if (from == FORMAT_AUTO && click_tools_know(path)) return click_tools_info(path, out);
    return text_tools_info(path, from, out);
}

static err_t verify_of(const char *path, source_format from, FILE *out) {
    if (from == FORMAT_AUTO && image_tools_know(path)) return image_tools_verify(path, out);
    if (from == FORMAT_AUTO && click_tools_know(path)) return click_tools_verify(path, out);
    return text_tools_verify(path, from, out);
}

// Each file, whatever is wrong with those before it. The first failure is returned, the others are printed.
static err_t each(int argc, char **argv, source_format from,
                  err_t (*of)(const char *path, source_format from, FILE *out), FILE *out) {
    err_t first = ERR_OK;
    err_record why;
    for (int i = 0; i < argc; i++) {
        err_t rc = of(argv[i], from, out);
        if (rc == ERR_OK) continue;
        if (first == ERR_OK) first = rc, why = *err_last();
        else fprintf(out, "%s\n", err_last()->text);
    }
    return first == ERR_OK ? ERR_OK : err_restore(&why);
}

static err_t join(int argc, char **argv, char files[8192]) {
    files[0] = 0;
    for (int i = 0; i < argc; i++) {
        size_t n = strlen(files);
        if (n + strlen(argv[i]) + 2 > 8192)
            return err_set(ERR_USAGE, "too many files: give a glob in quotes, 'old-*.bin'");
        snprintf(files + n, 8192 - n, "%s%s", n ? " " : "", argv[i]);
    }
    return ERR_OK;
}

err_t verb_data(int argc, char **argv, FILE *out) {
    const char *what = argc > 0 ? argv[0] : "";
    source_format from = FORMAT_AUTO, to = FORMAT_LOCKSTEP;
    bool converts = strcmp(what, "convert") == 0, verifies = strcmp(what, "verify") == 0;
    char files[8192];
    if (!converts && !verifies && strcmp(what, "info") != 0)
        return err_set(ERR_USAGE, "lockstep data %s: expected info, verify or convert", what);
    for (argc--, argv++; argc > 0 && strncmp(argv[0], "--", 2) == 0; argc -= 2, argv += 2) {
        bool is_from = strcmp(argv[0], "--from") == 0;
        if (!is_from && !(converts && strcmp(argv[0], "--to") == 0))
            return err_set(ERR_USAGE, "%s: no such option here; there is --from FORMAT%s", argv[0],
                           converts ? " and --to FORMAT" : "");
        TRY(text_tools_format(argv[0], argc > 1 ? argv[1] : NULL, is_from ? &from : &to));
    }
    if (argc < (converts ? 2 : 1))
        return err_set(ERR_USAGE, "lockstep data %s: expected files of tokens%s", what,
                       converts ? ", and the name of a new one" : "");
    if (!converts) return each(argc, argv, from, verifies ? verify_of : info_of, out);
    TRY(join(argc - 1, argv, files));
    return text_tools_convert(files, from, to, argv[argc - 1], out);
}
