"""Writes the images of the tests and Pillow's pixels of them: images/* and pillow.txt.

Recorded with Python 3.11, Pillow 13.0.0 (libjpeg-turbo 3.2.0, libwebp 1.6.0, zlib-ng 2.3.3, libtiff
4.7.2) and numpy. Files of other versions of the encoders may differ: then pillow.txt changes with
them.

    python record.py          in this folder
"""

import hashlib
import io
import os
import struct
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps, features

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "images")
names = []


def picture(w, h, seed=0):
    """Waves, an edge and a little noise."""
    y, x = np.mgrid[0:h, 0:w]
    r = np.random.default_rng(seed)
    a = np.stack([np.sin(x / 5) * 60 + np.cos(y / 7) * 60 + 128, (x * y / 3) % 256, ((x // 9 + y // 9) % 2) * 200 + 20], -1)
    return Image.fromarray((a + r.normal(0, 3, (h, w, 3))).clip(0, 255).astype("uint8"))


def alpha(w, h):
    y, x = np.mgrid[0:h, 0:w]
    a = np.dstack([np.array(picture(w, h)), ((x * 7 + y * 5) % 256).astype("uint8")])
    a[: h // 4, : w // 4, 3] = 0
    return Image.fromarray(a, "RGBA")


def put(name, data):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)
    names.append(name)


def save(name, im, fmt, **kw):
    b = io.BytesIO()
    im.save(b, fmt, **kw)
    put(name, b.getvalue())
    return b.getvalue()


def chunk(c, d):
    return struct.pack(">I", len(d)) + c + d + struct.pack(">I", zlib.crc32(c + d))


def png(w, h, depth, color, rows, extra=b"", after=b"", interlace=0):
    """A PNG of the given rows, each with filter 0."""
    raw = b"".join(b"\0" + r for r in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlace))
            + extra + chunk(b"IDAT", zlib.compress(raw)) + after + chunk(b"IEND", b""))


def interlaced(a):
    """Adam7 of 8-bit RGB."""
    raw = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        p = a[y0::dy, x0::dx]
        if p.size:
            raw += b"".join(b"\0" + r.tobytes() for r in p)
    h, w = a.shape[:2]
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 1))
            + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def exif(o):
    e = Image.Exif()
    e[0x0112] = o
    return e.tobytes()


def jpeg(im, **kw):
    b = io.BytesIO()
    im.save(b, "JPEG", quality=70, **kw)
    return bytearray(b.getvalue())


def jpegs():
    for w, h in ((1, 1), (3, 5), (33, 17)):
        for ss in ("4:4:4", "4:2:2", "4:2:0"):
            for prog in (False, True):
                if (w, prog) == (1, True):
                    continue
                save(f"rgb-{w}x{h}-{ss.replace(':', '')}{'-progressive' if prog else ''}.jpg", picture(w, h), "JPEG",
                     quality=80, subsampling=ss, progressive=prog)
    d = jpeg(picture(33, 18), subsampling="4:2:2")  # its blocks as those of 4:4:0: other pixels
    at = d.index(b"\xff\xc0")
    d[at + 11] = 0x12
    d[at + 5:at + 9] = struct.pack(">HH", 33, 18)
    put("rgb-440.jpg", d)
    save("rgb-411.jpg", picture(40, 19), "JPEG", quality=70, subsampling="4:1:1")
    save("rgb-quality5.jpg", picture(48, 40), "JPEG", quality=5)
    save("rgb-quality100.jpg", picture(24, 20), "JPEG", quality=100, subsampling="4:2:0")
    save("rgb-restart.jpg", picture(40, 33), "JPEG", quality=75, restart_marker_blocks=2)
    save("rgb-wide.jpg", picture(257, 9), "JPEG", quality=40)
    save("grey.jpg", picture(31, 20).convert("L"), "JPEG", quality=80)
    save("grey-progressive.jpg", picture(31, 20).convert("L"), "JPEG", quality=80, progressive=True)
    save("cmyk.jpg", picture(30, 21).convert("CMYK"), "JPEG", quality=85)
    save("cmyk-progressive.jpg", picture(30, 21).convert("CMYK"), "JPEG", quality=85, progressive=True)
    save("rgb-kept.jpg", picture(30, 21), "JPEG", quality=85, keep_rgb=True)
    d = jpeg(picture(30, 21).convert("CMYK"))
    d[d.index(b"Adobe") + 11] = 2  # Adobe's transform 2: YCCK
    put("ycck.jpg", d)
    for o in range(1, 9):
        save(f"exif{o}.jpg", picture(21, 13), "JPEG", quality=60, exif=exif(o))
    save("exif1-xmp6.jpg", picture(21, 13), "JPEG", quality=60, exif=exif(1), xmp=b'<a tiff:Orientation="6"/>')
    save("xmp6.jpg", picture(21, 13), "JPEG", quality=60,
             xmp=b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>')
    put("no-end.jpg", jpeg(picture(21, 13))[:-2])
    # A progressive file without its last scans: libjpeg smooths blocks.
    d = jpeg(picture(48, 40), progressive=True)
    for n in (1, 3):
        at = -1
        for _ in range(n + 1):
            at = d.index(b"\xff\xda", at + 1)
        put(f"scans-{n}.jpg", d[:at] + b"\xff\xd9")


def pngs():
    a = np.array(picture(19, 11))
    save("rgb.png", picture(19, 11), "PNG")
    put("rgb-interlaced.png", interlaced(a))
    save("rgba.png", alpha(20, 13), "PNG")
    save("grey.png", picture(19, 11).convert("L"), "PNG")
    save("grey-alpha.png", alpha(20, 13).convert("LA"), "PNG")
    save("one-bit.png", picture(19, 11).convert("1"), "PNG")
    save("palette.png", picture(19, 11).quantize(40), "PNG")
    save("palette-16.png", picture(19, 11).quantize(16), "PNG", bits=4)
    save("palette-4.png", picture(19, 11).quantize(4), "PNG", bits=2)
    save("palette-2.png", picture(19, 11).quantize(2), "PNG", bits=1)
    save("palette-index.png", picture(19, 11).quantize(9), "PNG", transparency=3)
    save("palette-alphas.png", picture(19, 11).quantize(9), "PNG", transparency=bytes(range(0, 250, 31)))
    save("one-pixel.png", picture(1, 1), "PNG")
    save("exif5.png", picture(19, 11), "PNG", exif=exif(5))
    save("exif8-palette.png", picture(19, 11).quantize(9), "PNG", exif=exif(8), transparency=2)
    wide = np.array(picture(13, 7)).astype(">u2") * 257 + 100
    g = (np.arange(13 * 7).reshape(7, 13) * 9).astype(">u2")
    put("grey-16.png", png(13, 7, 16, 0, [r.tobytes() for r in g]))
    put("grey-16-key.png", png(13, 7, 16, 0, [r.tobytes() for r in g], chunk(b"tRNS", struct.pack(">H", 45))))
    put("rgb-16.png", png(13, 7, 16, 2, [r.tobytes() for r in wide]))
    put("rgb-16-key.png", png(13, 7, 16, 2, [r.tobytes() for r in wide], chunk(b"tRNS", b"\0" + bytes([int(wide[2, 3, 0]) >> 8]) + b"\0"
        + bytes([int(wide[2, 3, 1]) >> 8]) + b"\0" + bytes([int(wide[2, 3, 2]) >> 8]))))
    put("rgba-16.png", png(13, 7, 16, 6, [np.dstack([wide[y:y + 1], g[y:y + 1] * 17]).astype(">u2").tobytes() for y in range(7)]))
    put("grey-alpha-16.png", png(13, 7, 16, 4, [np.dstack([wide[y:y + 1, :, 0], g[y:y + 1] * 17]).astype(">u2").tobytes() for y in range(7)]))
    put("grey-2.png", png(7, 2, 2, 0, [b"\x1b\xe4", b"\x72\x8c"]))
    put("grey-4.png", png(4, 2, 4, 0, [b"\x3f\x50", b"\x0c\xa9"]))
    put("grey-4-key.png", png(4, 2, 4, 0, [b"\x3f\x50", b"\x0c\xa9"], chunk(b"tRNS", b"\0\x33")))
    put("grey-1-key.png", png(8, 2, 1, 0, [b"\x3c", b"\xa5"], chunk(b"tRNS", b"\0\x01")))
    put("grey-1-key0.png", png(8, 2, 1, 0, [b"\x3c", b"\xa5"], chunk(b"tRNS", b"\0\0")))
    put("rgb-key.png", png(2, 1, 8, 2, [b"\x01\x02\x03\x04\x05\x06"], chunk(b"tRNS", b"\0\x04\0\x05\0\x06")))
    put("palette-short.png", png(4, 1, 8, 3, [b"\0\1\5\xff"], chunk(b"PLTE", b"\x0a\x0b\x0c\x14\x15\x16")))
    put("profile6.png", png(2, 1, 8, 2, [b"\x01\x02\x03\x04\x05\x06"], after=chunk(
        b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n  32\n" + exif(6).hex().encode() + b"\n"))))
    put("xmp3.png", png(2, 1, 8, 2, [b"\x01\x02\x03\x04\x05\x06"],
                        chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<a tiff:Orientation="3"/>')))


def webps():
    save("lossy.webp", picture(35, 27), "WEBP", quality=60)
    save("lossy-1x1.webp", picture(1, 1), "WEBP", quality=60)
    save("lossy-odd.webp", picture(3, 5), "WEBP", quality=90)
    save("lossless.webp", picture(35, 27).quantize(16).convert("RGB"), "WEBP", lossless=True)
    save("lossy-alpha.webp", alpha(30, 22), "WEBP", quality=60)
    save("lossless-alpha.webp", alpha(20, 13), "WEBP", lossless=True)
    save("exif7.webp", picture(21, 13), "WEBP", quality=50, exif=exif(7))
    frames = [picture(24, 18, i).rotate(i * 20) for i in range(6)]
    save("frames.webp", frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=[10, 20, 30, 40, 50, 60], quality=40)
    frames = [alpha(24, 18).rotate(i * 40) for i in range(4)]
    save("frames-alpha.webp", frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=70, quality=40, minimize_size=True)


def gif_blocks(w, h, colors, images, background=0):
    """A GIF whose frames are (x, y, w, h, indexes, transparent, disposal, local colors, interlaced)."""
    bits = max(1, (len(colors) // 3 - 1).bit_length())
    out = b"GIF89a" + struct.pack("<HHBBB", w, h, 0x80 | bits - 1, background, 0) + colors.ljust(3 << bits, b"\0")
    for x, y, fw, fh, px, trans, disposal, local, inter in images:
        out += b"!\xf9\x04" + bytes([disposal << 2 | (trans is not None)]) + struct.pack("<HB", 7, trans or 0) + b"\0"
        flags = (0x40 if inter else 0) | (0x80 | max(1, (len(local) // 3 - 1).bit_length()) - 1 if local else 0)
        out += b"," + struct.pack("<HHHHB", x, y, fw, fh, flags)
        if local:
            out += local.ljust(3 << max(1, (len(local) // 3 - 1).bit_length()), b"\0")
        if inter:
            rows = [px[r * fw:(r + 1) * fw] for r in range(fh)]
            px = b"".join(rows[r] for a, s in ((0, 8), (4, 8), (2, 4), (1, 2)) for r in range(a, fh, s))
        # Codes of 9 bits with a clear code after every 100: never wider.
        acc = n = 0
        data = bytearray()
        for i in range(0, len(px), 100):
            for c in [256, *px[i:i + 100]]:
                acc |= c << n
                n += 9
                while n >= 8:
                    data.append(acc & 255)
                    acc >>= 8
                    n -= 8
        acc |= 257 << n
        n += 9
        while n > 0:
            data.append(acc & 255)
            acc >>= 8
            n -= 8
        out += b"\x08" + b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255)) + b"\0"
    return out + b";"


def gifs():
    r = np.random.default_rng(3)
    pal = bytes(r.integers(0, 256, 48, dtype=np.uint8))
    other = bytes(r.integers(0, 256, 24, dtype=np.uint8))
    grey = bytes(v for i in range(16) for v in (i, i, i))

    def px(w, h, top=16):
        return bytes(r.integers(0, top, w * h, dtype=np.uint8))

    save("rgb.gif", picture(19, 11), "GIF")
    save("interlaced.gif", picture(19, 21).quantize(20), "GIF", interlace=1)
    save("grey.gif", picture(19, 11).convert("L"), "GIF")
    save("index.gif", picture(19, 11).quantize(9), "GIF", transparency=4)
    put("interlaced-own.gif", gif_blocks(9, 13, pal, [(0, 0, 9, 13, px(9, 13), None, 0, b"", True)]))
    put("inside.gif", gif_blocks(12, 10, pal, [(3, 2, 5, 6, px(5, 6), None, 0, b"", False)]))
    put("inside-transparent.gif", gif_blocks(12, 10, pal, [(3, 2, 5, 6, px(5, 6), 4, 0, b"", False)]))
    put("outside.gif", gif_blocks(6, 5, pal, [(3, 2, 5, 6, px(5, 6), None, 0, b"", False)]))
    put("short-palette.gif", gif_blocks(6, 5, pal[:9], [(0, 0, 6, 5, px(6, 5, 40), None, 0, b"", False)]))
    put("local.gif", gif_blocks(6, 5, pal, [(0, 0, 6, 5, px(6, 5, 8), 2, 0, other, False)]))
    for t0 in (None, 4):
        for t1 in (None, 6):
            images = [(0, 0, 12, 10, px(12, 10), t0, 1, b"", False)]
            for d in (1, 2, 3, 0, 3, 2, 1):
                images.append((d + 1, d, 5, 4, px(5, 4, 8), t1, d, other if d == 2 else b"", d == 3))
            put(f"frames-{t0}-{t1}.gif", gif_blocks(12, 10, pal, images, 5))
    put("frames-first-2.gif", gif_blocks(9, 8, pal, [(1, 1, 6, 5, px(6, 5), 3, 2, b"", False), (2, 2, 4, 4, px(4, 4), None, 2, b"", False),
                                                     (0, 0, 4, 4, px(4, 4), 1, 3, b"", False), (5, 4, 4, 4, px(4, 4), 1, 0, b"", False)], 2))
    put("frames-first-3.gif", gif_blocks(9, 8, pal, [(1, 1, 6, 5, px(6, 5), None, 3, b"", False), (2, 2, 4, 4, px(4, 4), None, 2, b"", False),
                                                     (0, 0, 4, 4, px(4, 4), 1, 3, b"", False), (5, 4, 4, 4, px(4, 4), 1, 0, b"", False)], 2))
    put("frames-grey.gif", gif_blocks(9, 8, grey, [(0, 0, 9, 8, px(9, 8), None, 1, b"", False), (2, 2, 4, 4, px(4, 4), 5, 2, b"", False),
                                                   (0, 0, 4, 4, px(4, 4), None, 3, b"", False), (5, 4, 4, 4, px(4, 4), 1, 0, b"", False)], 2))


def bmp(w, h, bits, rows, palette=b"", compression=0, masks=b"", size=40, colors=0):
    head = struct.pack("<IiiHHIIiiII", size, w, h, 1, bits, compression, 0, 0, 0, colors, 0)
    if size > 40:
        head += masks.ljust(size - 40, b"\0")
        masks = b""
    body = masks + palette
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, 14 + size + len(body)) + head + body + rows


def bmps():
    save("rgb.bmp", picture(7, 5), "BMP")
    save("grey.bmp", picture(7, 5).convert("L"), "BMP")
    save("palette.bmp", picture(7, 5).quantize(200), "BMP")
    save("one-bit.bmp", picture(11, 5).convert("1"), "BMP")
    r = np.random.default_rng(4)
    rows = bytes(r.integers(0, 256, 4 * 6 * 5, dtype=np.uint8))
    pal = bytes(r.integers(0, 256, 64, dtype=np.uint8))
    put("down.bmp", bmp(6, -5, 32, rows))
    put("bits-4.bmp", bmp(6, 5, 4, rows, pal, colors=16))
    put("bits-1.bmp", bmp(6, 5, 1, rows, pal[:8]))
    put("bits-16.bmp", bmp(6, 5, 16, rows))
    for name, m in (("565", (0xF800, 0x7E0, 0x1F, 0)), ("555", (0x7C00, 0x3E0, 0x1F, 0))):
        put(f"bits-16-{name}.bmp", bmp(6, 5, 16, rows, compression=3, masks=struct.pack("<III", *m[:3])))
    for i, m in enumerate(((0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0xFF), (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
                           (0xFF0000, 0xFF00, 0xFF, 0xFF000000), (0xFF000000, 0xFF00, 0xFF, 0xFF0000), (0, 0, 0, 0))):
        put(f"bits-32-masks{i}.bmp", bmp(6, 5, 32, rows, compression=3, masks=struct.pack("<IIII", *m), size=108))
    rle8 = b"\x03\x05\x00\x03\x01\x02\x03\x00\x00\x00" + b"\x06\x07\x00\x00" + b"\x02\x01\x00\x02\x02\x01\x03\x09\x00\x00" + b"\x00\x06\x01\x02\x03\x04\x05\x06" * 3 + b"\x00\x01"
    put("rle8.bmp", bmp(6, 5, 8, rle8, pal, compression=1, colors=16))
    rle4 = b"\x06\x5a\x00\x00" + b"\x00\x05\x12\x34\x50\x00\x01\x70\x00\x00" + b"\x06\x12\x00\x00\x06\x34\x00\x00\x06\x56\x00\x01"
    put("rle4.bmp", bmp(6, 5, 4, rle4, pal, compression=2, colors=16))


def tiffs():
    im = picture(17, 11)
    save("rgb.tif", im, "TIFF")
    for c in ("tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits"):
        save(f"rgb-{c}.tif", im, "TIFF", compression=c)
    save("predictor.tif", im, "TIFF", compression="tiff_lzw", tiffinfo={317: 2})
    save("grey.tif", im.convert("L"), "TIFF")
    save("one-bit.tif", im.convert("1"), "TIFF")
    save("palette.tif", im.quantize(60), "TIFF")
    save("rgba.tif", alpha(17, 11), "TIFF")
    save("grey-16.tif", Image.fromarray((np.arange(77).reshape(7, 11) * 9).astype("uint16")), "TIFF")
    save("exif6.tif", im, "TIFF", tiffinfo={274: 6})


def damaged():
    """What Pillow refuses: cut files, a header alone, a wrong checksum of a header."""
    for name in ("rgb-33x17-420.jpg", "rgb-33x17-444-progressive.jpg", "rgb.png", "lossy.webp", "rgb.gif", "palette.bmp", "rgb.tif"):
        with open(os.path.join(OUT, name), "rb") as f:
            d = f.read()
        put("cut-" + name, d[: len(d) * 2 // 3])
    with open(os.path.join(OUT, "palette.png"), "rb") as f:
        d = bytearray(f.read())
    d[d.index(b"PLTE") + 5] ^= 1
    put("wrong-checksum.png", d)
    put("huge.png", b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 100000, 100000, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))


def load(im):
    """vLLM 0.33's ImageMediaIO: open_image, normalize_image, convert_image_mode.

    load comes first: vLLM swallows its first error, and then has an image of black pixels.
    """
    im.load()
    try:
        im = ImageOps.exif_transpose(im)
    except Exception:
        pass
    im.load()
    if im.mode in ("RGBA", "LA", "PA") or "transparency" in im.info:
        if im.mode != "RGBA":
            im = im.convert("RGBA")
        out = Image.new("RGB", im.size, (255, 255, 255))
        out.paste(im, mask=im.split()[3])
        return out
    return im.convert("RGB")


def main():
    os.makedirs(OUT, exist_ok=True)
    for f in os.listdir(OUT):
        os.remove(os.path.join(OUT, f))
    for f in (jpegs, pngs, webps, gifs, bmps, tiffs, damaged):
        f()
    lines = [f"# Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}, libwebp {features.version('webp')}, "
             f"zlib {features.version('zlib')}, libtiff {features.version('libtiff')}, numpy {np.__version__}: file, frame, size, SHA-256 of the pixels"]
    for name in sorted(names):
        path = os.path.join(OUT, name)
        frames = getattr(Image.open(path), "n_frames", 1) if "frames" in name else 1
        for i in range(frames):
            try:
                im = Image.open(path)
                im.seek(i)
                p = load(im)
            except (OSError, SyntaxError, EOFError, Image.DecompressionBombError, ValueError) as e:
                print(f"{name}: {e}")
                lines.append(f"{name} {i} refused")
                continue
            lines.append(f"{name} {i} {p.width}x{p.height} {hashlib.sha256(p.tobytes()).hexdigest()}")
    with open(os.path.join(HERE, "pillow.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")
    print(len(names), "images,", sum(os.path.getsize(os.path.join(OUT, n)) for n in names), "bytes")


main()
