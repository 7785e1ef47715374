// trainer/watch/http_token.h: the word without which a server that listens beyond this machine shows nothing.
#ifndef TRAINER_WATCH_HTTP_TOKEN_H
#define TRAINER_WATCH_HTTP_TOKEN_H

#include "base/err.h"
#include "trainer/watch/http_parse.h"

#include <stdint.h>

enum { HTTP_TOKEN_LEAST = 16, HTTP_TOKEN_MOST = 256, HTTP_TOKEN = HTTP_TOKEN_MOST + 1, HTTP_TOKEN_HASH = 32 };

// The token in a file of mode 0600, without spaces and line ends around it. secret_file: that of the cluster, which it
// must not be ("": none): a token is shown to browsers and to Prometheus, and the cluster's secret lets in ranks.
// ERR_AUTH: no such file, not a regular one, of another user, or others may read it, shorter than HTTP_TOKEN_LEAST,
// longer than HTTP_TOKEN_MOST, of other bytes than printable ASCII; the cluster's secret. Wipe it (sodium_memzero) once
// http_open has it.
err_t http_token_read(const char *path, const char *secret_file, char token[HTTP_TOKEN]);

// What a server keeps of it.
void http_token_hash(const char *token, uint8_t hash[HTTP_TOKEN_HASH]);

// Whether a request knows the token. The time it takes does not depend on how much of it is right.
bool http_token_is(const uint8_t hash[HTTP_TOKEN_HASH], http_text authorization);

#endif
