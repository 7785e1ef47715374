// trainer/log/tfrecord.h: a file of records as TensorFlow frames them, which is only ever appended to.
//
//   length    8 bytes, lowest first       A reader may follow the file while it grows, and it keeps what it has read of
//             a
//   checksum  4, of the length            record that is not whole yet. So no byte is ever taken back: if a record is
//   data      length bytes                written in part (mostly to a full disk), its rest waits here, and is written
//   checksum  4, of the data              next. Later records wait after it, as long as there is room for them.
//
// A checksum is masked(crc32c): of the bytes, rotated right by 15 bits, plus a constant, because a CRC of data that
// contains CRCs is a weak one. (tensorflow/core/lib/hash/crc32c.h)
#ifndef TRAINER_LOG_TFRECORD_H
#define TRAINER_LOG_TFRECORD_H

#include "base/err.h"
#include "base/io.h"
#include "trainer/log/proto.h"

enum { TFRECORD_ROOM = 65536 };  // bytes that may wait

typedef struct tfrecord {
    int fd;  // -1: not open yet
    char path[IO_PATH];
    proto out;     // whole records that are not written, and the one that is being built
    size_t begun;  // where it begins
    uint8_t bytes[TFRECORD_ROOM];
} tfrecord;

// CRC-32C (Castagnoli) of n bytes: of "123456789" it is 0xE3069283.
uint32_t crc32c(const void *bytes, size_t n);

// Makes f ready; no file is touched. path: of the file, which the first tfrecord_write makes. f must not move
// afterwards.
void tfrecord_open(tfrecord *f, const char *path);
void tfrecord_close(tfrecord *f);

// What is written to the message between these two is the data of a record, which then waits to be written. ERR_IO:
// there was no room for it, and it is lost; what waited is written if it can be.
proto *tfrecord_begin(tfrecord *f);
err_t tfrecord_end(tfrecord *f);

// Writes all that waits. ERR_IO names the file and errno; what is not written still waits, and the next call goes on.
err_t tfrecord_write(tfrecord *f);

// To disk, with what was written.
err_t tfrecord_sync(tfrecord *f);

#endif
