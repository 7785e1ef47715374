// comm/tcp/link.c: see comm/tcp/link.h. One system call moves as much as the socket takes or has: heads, tags and
// payload together.
#include "comm/tcp/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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

link_result link_broken(link_end *l, bool lost, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(l->why, sizeof l->why, fmt, args);
    va_end(args);
    l->lost |= lost;
    return LINK_FAILED;
}

static link_result broken_by(link_end *l, const char *what) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return LINK_BLOCKED;
    return link_broken(l, true, "the connection is lost (%s: %s)", what, strerror(errno));
}

// --- sending ---------------------------------------------------------------------------------------------------------

void link_post(link_end *l, const message *m, const void *data, size_t bytes, bool last) {
    if (l->by) {
        l->by->post(l, m, data, bytes, last);
        return;
    }
    seal_keys k;
    seal_keys_of(&k, l->send_key, l->sent++);
    seal_head(l->head, &k, m, (uint32_t)bytes);
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
    if (l->by) return l->by->push(l);
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
    if (n == 0) return link_broken(l, true, "the connection was closed from there");
    *got = (size_t)n < want ? (size_t)n : want;
    l->to += (size_t)n - *got;
    return LINK_MOVED;
}

link_result link_head(link_end *l, message *m, uint32_t *length) {
    if (l->by) return l->by->head(l, m, length);
    size_t need = LINK_SEALED, got;
    if (l->to - l->from < need) {
        memmove(l->buffer, l->buffer + l->from, l->to - l->from);
        l->to -= l->from;
        l->from = 0;
        link_result r = fetch(l, NULL, 0, &got);
        if (r != LINK_MOVED || l->to < need) return r;
    }
    const uint8_t *p = l->buffer + l->from;
    seal_keys k;
    seal_keys_of(&k, l->recv_key, l->received++);
    const char *wrong = seal_open(p, &k, m, length);
    if (wrong) return link_broken(l, false, "%s", wrong);
    l->from += need;
    crypto_onetimeauth_init(&l->auth, k.payload);
    l->length = *length;
    l->done = l->tagged = 0;
    l->in_frame = *length > 0;
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

link_result link_body(link_end *l, void *dst, size_t ahead) {
    if (l->by) return l->by->body(l, dst, ahead);
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
    if (sodium_memcmp(tag, l->got_tag, LINK_TAG) != 0) return link_broken(l, false, "%s", seal_payload_changed);
    return LINK_DONE;
}
