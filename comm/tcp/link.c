// comm/tcp/link.c: see comm/tcp/link.h. One system call moves as much as the socket takes or has: heads, tags and
// payload together.
#include "comm/tcp/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MAGIC = 0x6b636f6c };  // "lock"

// Little-endian on all machines that take part: the team refuses other builds.
typedef struct frame_head {
    uint32_t magic, length;
    message m;
} frame_head;
_Static_assert(sizeof(frame_head) == LINK_HEAD, "the head has no holes");
_Static_assert(crypto_onetimeauth_BYTES == LINK_TAG && crypto_onetimeauth_KEYBYTES == 32, "Poly1305");
_Static_assert(crypto_stream_chacha20_ietf_KEYBYTES == TEAM_KEY, "ChaCha20");

err_t link_open(link_end *l, const team_link *t) {
    *l = (link_end){.fd = t->fd};
    memcpy(l->send_key, t->send_key, sizeof l->send_key);
    memcpy(l->recv_key, t->recv_key, sizeof l->recv_key);
    l->buffer = malloc(LINK_BUFFER);
    return l->buffer ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a connection");
}

void link_close(link_end *l) {
    free(l->buffer);
    sodium_memzero(l, sizeof *l);
    l->fd = -1;
}

typedef struct frame_keys {
    uint8_t head[32], payload[32];
} frame_keys;

static void keys_of(frame_keys *k, const uint8_t key[TEAM_KEY], uint64_t number) {
    uint8_t nonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {0};
    memcpy(nonce, &number, sizeof number);
    crypto_stream_chacha20_ietf((uint8_t *)k, sizeof *k, nonce, key);
}

static link_result broken(link_end *l, const char *why) {
    snprintf(l->why, sizeof l->why, "%s", why);
    return LINK_FAILED;
}

static link_result broken_by(link_end *l, const char *what) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return LINK_BLOCKED;
    snprintf(l->why, sizeof l->why, "the connection is lost (%s: %s)", what, strerror(errno));
    l->lost = true;
    return LINK_FAILED;
}

// --- sending ---------------------------------------------------------------------------------------------------------

void link_post(link_end *l, const message *m, const void *data, size_t bytes) {
    frame_head h = {MAGIC, (uint32_t)bytes, *m};
    frame_keys k;
    keys_of(&k, l->send_key, l->sent++);
    memcpy(l->head, &h, sizeof h);
    crypto_onetimeauth(l->head + LINK_HEAD, l->head, LINK_HEAD, k.head);
    if (bytes) crypto_onetimeauth(l->tag, data, bytes, k.payload);
    l->rest[0] = (struct iovec){l->head, sizeof l->head};
    l->rest[1] = (struct iovec){(void *)data, bytes};
    l->rest[2] = (struct iovec){l->tag, sizeof l->tag};
    l->first = 0;
    l->count = bytes ? 3 : 1;
}

static void written(link_end *l, size_t n) {
    l->wire += (int64_t)n;
    while (l->first < l->count) {
        struct iovec *v = &l->rest[l->first];
        if (n < v->iov_len) {
            v->iov_base = (char *)v->iov_base + n;
            v->iov_len -= n;
            return;
        }
        n -= v->iov_len;
        l->first++;
    }
}

link_result link_push(link_end *l) {
    bool moved = false;
    while (link_sending(l)) {
        struct msghdr h = {.msg_iov = l->rest + l->first, .msg_iovlen = (size_t)(l->count - l->first)};
        ssize_t n = sendmsg(l->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            link_result r = broken_by(l, "send");
            return r == LINK_BLOCKED && moved ? LINK_MOVED : r;
        }
        written(l, (size_t)n);
        moved = true;
    }
    return LINK_DONE;
}

// --- receiving -------------------------------------------------------------------------------------------------------

// Reads into dst first, then into the buffer, which must be empty. With no dst: appends to the buffer.
static link_result fetch(link_end *l, void *dst, size_t want, size_t *got) {
    if (l->from == l->to) l->from = l->to = 0;
    struct iovec v[2] = {{dst, want}, {l->buffer + l->to, LINK_BUFFER - l->to}};
    struct msghdr h = {.msg_iov = want ? v : v + 1, .msg_iovlen = want ? 2 : 1};
    ssize_t n;
    do n = recvmsg(l->fd, &h, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    *got = 0;
    if (n < 0) return broken_by(l, "receive");
    if (n == 0) {
        l->lost = true;
        return broken(l, "the connection was closed from there");
    }
    *got = (size_t)n < want ? (size_t)n : want;
    l->to += (size_t)n - *got;
    return LINK_MOVED;
}

link_result link_head(link_end *l, message *m, uint32_t *length) {
    size_t need = LINK_HEAD + LINK_TAG, got;
    if (l->to - l->from < need) {
        memmove(l->buffer, l->buffer + l->from, l->to - l->from);
        l->to -= l->from;
        l->from = 0;
        link_result r = fetch(l, NULL, 0, &got);
        if (r != LINK_MOVED || l->to < need) return r;
    }
    const uint8_t *p = l->buffer + l->from;
    frame_keys k;
    frame_head h;
    keys_of(&k, l->recv_key, l->received++);
    if (crypto_onetimeauth_verify(p + LINK_HEAD, p, LINK_HEAD, k.head) != 0)
        return broken(l, "a frame's head does not verify: it was changed on the way, or is not from there");
    memcpy(&h, p, sizeof h);
    l->from += need;
    if (h.magic != MAGIC || h.length > LINK_FRAME) return broken(l, "a frame that verifies and makes no sense");
    crypto_onetimeauth_init(&l->auth, k.payload);
    l->length = h.length;
    l->done = l->tagged = 0;
    l->in_frame = h.length > 0;
    *m = h.m;
    *length = h.length;
    return LINK_DONE;
}

// Takes what the buffer holds of the payload and of its tag.
static bool from_buffer(link_end *l, uint8_t *dst) {
    size_t have = l->to - l->from, n = l->length - l->done < have ? l->length - l->done : have;
    memcpy(dst + l->done, l->buffer + l->from, n);
    crypto_onetimeauth_update(&l->auth, dst + l->done, n);
    l->done += (uint32_t)n, l->from += n, have -= n;
    size_t t = l->done < l->length ? 0 : LINK_TAG - l->tagged < have ? LINK_TAG - l->tagged : have;
    memcpy(l->got_tag + l->tagged, l->buffer + l->from, t);
    l->tagged += (uint32_t)t, l->from += t;
    return n + t > 0;
}

link_result link_body(link_end *l, void *dst) {
    bool moved = from_buffer(l, dst);
    while (l->tagged < LINK_TAG) {  // then the buffer is empty
        size_t got;
        link_result r = fetch(l, (char *)dst + l->done, l->length - l->done, &got);
        if (r != LINK_MOVED) return r == LINK_BLOCKED && moved ? LINK_MOVED : r;
        crypto_onetimeauth_update(&l->auth, (uint8_t *)dst + l->done, got);
        l->done += (uint32_t)got;
        from_buffer(l, dst);
        moved = true;
    }
    uint8_t tag[LINK_TAG];
    crypto_onetimeauth_final(&l->auth, tag);
    l->in_frame = false;
    if (sodium_memcmp(tag, l->got_tag, LINK_TAG) != 0)
        return broken(l, "a frame's payload does not verify: it was changed on the way, or is not from there");
    return LINK_DONE;
}
