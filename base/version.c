// base/version.c: the only file that is recompiled when only the commit changes.
#include "base/version.h"

const char *version_text(void) { return "0.1.0 " GIT_VERSION; }
const char *version_sources(void) { return SOURCES; }
