// base/version.h: which build this is, for logs, checkpoints and other nodes.
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

// "0.1.0 1a2b3c4", the second word from git: "unknown" outside git, "-dirty" after any change. For people: it does
// not tell builds apart.
const char *version_text(void);

// 16 hex digits over what decides the bits of a build: all sources, the Makefile, and flags of the caller that could
// change a result. It is the same with and without CUDA, with any compiler, for any processor, because these change
// no bits that are promised to be the same.
const char *version_sources(void);

#endif
