# test/golden/make_images.py: pictures for test/test_picture.c, and what Pillow makes of them. Run it in this folder with
# Pillow before 13 (12.0 made the files here; see data/image/resize.h) and numpy:
#     python3 make_images.py
#
# images.tar.gz  100 JPEG and 42 PNG files of computed pictures, 0000.jpg ..., each with a .cls, its number
# images.txt     of each: "picture NUMBER HEIGHT WIDTH CRC", of ImageOps.exif_transpose(...).convert("RGB");
#                then 1,000 parts of them in other sizes: "resized NUMBER TOP LEFT HEIGHT WIDTH TO_HEIGHT TO_WIDTH CRC"
#                of crop(...).resize(..., BILINEAR). CRC is that of zlib, over (h,w,3) bytes.
import gzip
import io
import random
import struct
import tarfile
import zlib

import numpy as np
from PIL import Image, ImageOps

dice = random.Random(34)


def computed(w, h, channels=3):
    """Waves, edges and noise, so that no decoder has an easy time."""
    y, x = np.mgrid[0:h, 0:w].astype(np.float64)
    planes = []
    for c in range(channels):
        a, b, p = dice.uniform(0.05, 0.6), dice.uniform(0.05, 0.6), dice.uniform(0, 6)
        v = 128 + 90 * np.sin(a * x + b * y + p) + 60 * ((x + 2 * y + 7 * c) % 23 < 9)
        planes.append(v + np.array([[dice.gauss(0, 14) for _ in range(w)] for _ in range(h)]))
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def size():
    return dice.randint(1, 40), dice.randint(1, 40)


def jpeg(mode, w, h, **how):
    pixels = computed(w, h, {"L": 1, "RGB": 3, "CMYK": 4}[mode])
    image = Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode)
    out = io.BytesIO()
    image.save(out, "JPEG", **how)
    return out.getvalue()


def oriented(k):
    exif = Image.Exif()
    exif[0x0112] = k
    return exif


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(samples, depth, color, interlaced=False, extra=b""):
    """Samples (h,w,c) of `depth` bits, as a PNG with filter 0 in all rows: what Pillow does not write."""
    h, w, c = samples.shape

    def rows(part):
        out = b""
        for row in part:
            if depth == 16:
                out += b"\0" + row.astype(">u2").tobytes()
            elif depth == 8:
                out += b"\0" + row.astype(np.uint8).tobytes()
            else:
                bits = "".join(format(int(v), "0%db" % depth) for v in row.reshape(-1))
                bits += "0" * (-len(bits) % 8)
                out += b"\0" + bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        return out

    adam7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    data = b""
    if interlaced:
        for top, left, down, right in adam7:
            part = samples[top::down, left::right]
            if part.shape[0] and part.shape[1]:
                data += rows(part)
    else:
        data = rows(samples)
    head = struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def png(image, **how):
    out = io.BytesIO()
    image.save(out, "PNG", **how)
    return out.getvalue()


def random_samples(w, h, c, depth):
    return np.array([dice.randrange(1 << depth) for _ in range(w * h * c)]).reshape(h, w, c)


def pictures():
    for sampling in (0, 1, 2):
        for progressive in (False, True):
            for quality in (30, 75, 90, 98):
                for _ in range(3):
                    yield "jpg", jpeg("RGB", *size(), quality=quality, subsampling=sampling, progressive=progressive), None
    for k in range(8):
        yield "jpg", jpeg("L", *size(), quality=60 + 5 * k, progressive=k % 2 == 1), None
    for k in range(8):
        yield "jpg", jpeg("CMYK", *size(), quality=80, subsampling=k % 3, progressive=k > 3), None
    for k in range(1, 9):
        yield "jpg", jpeg("RGB", *size(), quality=85, exif=oriented(k)), None
    for k in range(4):
        yield "jpg", jpeg("RGB", *size(), quality=85, restart_marker_blocks=k + 1, optimize=True), None
    for k in range(10):
        w, h = size()
        yield "png", png(Image.fromarray(computed(w, h)), optimize=k % 2 == 0), None
    for k in range(3):
        w, h = size()
        yield "png", png(Image.fromarray(computed(w, h, 4), "RGBA")), None
        yield "png", png(Image.fromarray(computed(w, h, 2), "LA")), None
        yield "png", png(Image.fromarray(computed(w, h, 1)[..., 0])), None
        yield "png", png(Image.fromarray(computed(w, h)).quantize(5 + 100 * k)), None
        yield "png", png(Image.fromarray(computed(w, h)).quantize(9), transparency=2), None
        yield "png", png(Image.fromarray(computed(w, h, 1)[..., 0]).convert("1")), None
    yield "png", png(Image.fromarray(computed(20, 11)), exif=oriented(6)), None
    yield "png", png(Image.fromarray(computed(20, 11)), transparency=(1, 2, 3)), None
    for depth in (2, 4):
        yield "png", raw_png(random_samples(*size(), 1, depth), depth, 0), None
        palette = chunk(b"PLTE", bytes(dice.randrange(256) for _ in range(3 << depth)))
        yield "png", raw_png(random_samples(*size(), 1, depth), depth, 3, extra=palette), None
    for interlaced in (False, True):
        for c, color in ((3, 2), (4, 6)):
            yield "png", raw_png(random_samples(*size(), c, 8), 8, color, interlaced), None
        wide = random_samples(*size(), 3, 16)
        yield "png", raw_png(wide, 16, 2, interlaced), (wide >> 8).astype(np.uint8)
        grey = random_samples(*size(), 1, 16)
        yield "png", raw_png(grey, 16, 0, interlaced), np.repeat((grey >> 8).astype(np.uint8), 3, 2)


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


lines, upright = [], []
with gzip.GzipFile("images.tar.gz", "wb", mtime=0) as packed, tarfile.open(
    fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT
) as tar:
    for k, (ending, data, known) in enumerate(pictures()):
        add(tar, "%04d.%s" % (k, ending), data)
        add(tar, "%04d.cls" % k, b"%d" % k)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        pixels = np.asarray(image)
        if known is not None:
            image, pixels = Image.fromarray(known), known
        upright.append(image)
        lines.append("picture %d %d %d %08x" % (k, *pixels.shape[:2], zlib.crc32(pixels.tobytes())))
for _ in range(1000):
    k = dice.randrange(len(upright))
    w, h = upright[k].size
    cw, ch = dice.randint(1, w), dice.randint(1, h)
    left, top = dice.randint(0, w - cw), dice.randint(0, h - ch)
    tw, th = (dice.choice((cw, dice.randint(1, 64))), dice.choice((ch, dice.randint(1, 64))))
    part = upright[k].crop((left, top, left + cw, top + ch)).resize((tw, th), Image.BILINEAR)
    crc = zlib.crc32(np.asarray(part).tobytes())
    lines.append("resized %d %d %d %d %d %d %d %08x" % (k, top, left, ch, cw, th, tw, crc))
with open("images.txt", "w") as out:
    out.write("\n".join(lines) + "\n")
