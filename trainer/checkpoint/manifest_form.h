// trainer/checkpoint/manifest_form.h: what the text of a manifest begins and ends with, for the files that print and
// that read it. Internal to trainer/checkpoint/.
#ifndef TRAINER_CHECKPOINT_MANIFEST_FORM_H
#define TRAINER_CHECKPOINT_MANIFEST_FORM_H

#include "trainer/checkpoint/manifest.h"

#define MANIFEST_FORMAT "lockstep checkpoint"
enum { MANIFEST_HEX = 2 * CKPT_DIGEST };

// The text ends with the digest of everything before it: TAIL_BEGIN, hex, TAIL_END.
#define TAIL_BEGIN ",\n \"digest\": \""
#define TAIL_END "\"\n}\n"
enum { TAIL = sizeof TAIL_BEGIN - 1 + MANIFEST_HEX + sizeof TAIL_END - 1 };

// tail (=) that of a text of n bytes.
void manifest_tail(char tail[TAIL + 1], const char *text, size_t n);

extern const char *const manifest_kinds[FILE_KINDS];  // of files, as they are named

#endif
