// base/version.h: which build this is, for logs and checkpoints.
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

// "0.1.0 1a2b3c4", the second word from git.
const char *version_text(void);

#endif
