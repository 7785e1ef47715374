// trainer/watch/http_token.c: see http_token.h. Hashes are compared, not tokens: they have one length, and the process
// keeps nothing that could be shown to another server.
#include "trainer/watch/http_token.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKE_ONE "Make one with `(umask 077; head -c 24 /dev/urandom | base64 >token)`"

static err_t check(const char *path, const struct stat *st, const char *secret_file) {
    struct stat secret;
    if (!S_ISREG(st->st_mode)) return err_set(ERR_AUTH, "%s: not a regular file. " MAKE_ONE, path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(ERR_AUTH, "%s: belongs to user %u; expected yours (%u) or root's. " MAKE_ONE, path,
                       (unsigned)st->st_uid, (unsigned)geteuid());
    if (st->st_mode & (S_IRWXG | S_IRWXO))
        return err_set(
            ERR_AUTH,
            "%s: mode %04o lets others read the token; expected 0600. If it was so for long, make a new one; otherwise `chmod 600 %s`",
            path, st->st_mode & 07777, path);
    if (*secret_file && stat(secret_file, &secret) == 0 && secret.st_dev == st->st_dev && secret.st_ino == st->st_ino)
        return err_set(ERR_AUTH, "%s: this is the cluster's secret, which no browser may see. " MAKE_ONE, path);
    return ERR_OK;
}

// The file's bytes, without what is white around them, as a text.
static err_t trim(const char *path, const char *bytes, size_t n, char token[HTTP_TOKEN]) {
    for (; n && strchr(" \t\r\n", bytes[n - 1]) && bytes[n - 1]; n--) {}
    for (; n && strchr(" \t\r\n", *bytes) && *bytes; bytes++) n--;
    if (n < HTTP_TOKEN_LEAST || n > HTTP_TOKEN_MOST)
        return err_set(ERR_AUTH, "%s: a token of %s%zu characters; expected %d to %d. " MAKE_ONE, path,
                       n > HTTP_TOKEN_MOST ? "at least " : "", n, HTTP_TOKEN_LEAST, HTTP_TOKEN_MOST);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] <= ' ' || bytes[i] >= 0x7F)
            return err_set(
                ERR_AUTH,
                "%s: character %zu of the token can't be typed into a browser; expected letters and digits. " MAKE_ONE,
                path, i + 1);
    memcpy(token, bytes, n);
    token[n] = 0;
    return ERR_OK;
}

err_t http_token_read(const char *path, const char *secret_file, char token[HTTP_TOKEN]) {
    char bytes[HTTP_TOKEN_MOST + 64];
    struct stat st;
    size_t got = 0;
    token[0] = 0;
    // Open first, then check: the file that is checked is the one that is read. Without O_NONBLOCK a named pipe would
    // block here.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return err_set(ERR_AUTH, "%s: the token can't be read: %s. " MAKE_ONE, path, strerror(errno));
    err_t rc = fstat(fd, &st) == 0 ? check(path, &st, secret_file) : err_set(ERR_AUTH, "%s: %s", path, strerror(errno));
    while (rc == ERR_OK && got < sizeof bytes) {
        ssize_t n = read(fd, bytes + got, sizeof bytes - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = err_set(ERR_AUTH, "%s: %s", path, strerror(errno));
        if (n <= 0) break;
        got += (size_t)n;
    }
    close(fd);
    if (rc == ERR_OK) rc = trim(path, bytes, got, token);
    sodium_memzero(bytes, sizeof bytes);
    return rc;
}

static void hash_of(const void *bytes, size_t n, uint8_t hash[HTTP_TOKEN_HASH]) {
    crypto_generichash(hash, HTTP_TOKEN_HASH, bytes, n, (const unsigned char *)"lockstep http token", 19);
}

void http_token_hash(const char *token, uint8_t hash[HTTP_TOKEN_HASH]) { hash_of(token, strlen(token), hash); }

bool http_token_is(const uint8_t hash[HTTP_TOKEN_HASH], http_text authorization) {
    char said[HTTP_HEAD];
    uint8_t of_it[HTTP_TOKEN_HASH];
    size_t n = http_credential(authorization, said, sizeof said);
    hash_of(said, n, of_it);
    bool same = sodium_memcmp(of_it, hash, sizeof of_it) == 0 && n > 0;
    sodium_memzero(said, sizeof said);
    sodium_memzero(of_it, sizeof of_it);
    return same;
}
