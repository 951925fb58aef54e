"""Times vapp's decoding and preprocessing of images of 12 megapixels beside Pillow's, in turns, and prints the ratios.

    python scripts/bench_media.py FOLDER TEST     TEST: the test binary of appliance/media/load

It needs Pillow 13.0.0 and numpy. Both sides use one thread, and times are of its processor, so other load matters little. Pillow's side is what vLLM's loader does:
open, EXIF orientation, convert to RGB; then resize with BICUBIC to the size that the model's rule has.
Vapp's side of preprocessing also writes the patches that the encoder takes.
"""

import io
import os
import re
import subprocess
import sys
import time

import numpy as np
import PIL
from PIL import Image, ImageOps

ROUNDS = 5
RULES = ("gemma", "qwen")  # 280 tokens; nearly the size of the image


def picture(w, h):
    """Waves, squares and noise: about as many bytes as a photograph of quality 90."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([(np.sin(x / 17) + np.cos(y / 11)) * 60 + 128, (x * y / 900) % 256, ((x // 40 + y // 40) % 2) * 200 + 20], -1)
    return Image.fromarray((a + rng.normal(0, 6, (h, w, 3))).clip(0, 255).astype("uint8"))


def pillow(data, size):
    """Seconds of decoding, of resizing to size (or None), and of both."""
    best = [1e9, 1e9, 1e9]
    for _ in range(3):
        start = time.process_time()
        im = Image.open(io.BytesIO(data))
        im = ImageOps.exif_transpose(im)
        im.load()
        im = im.convert("RGB")
        decoded = time.process_time()
        if size:
            im.resize(size, Image.Resampling.BICUBIC)
        end = time.process_time()
        best = [min(a, b) for a, b in zip(best, (decoded - start, end - decoded, end - start))]
    return best


def vapp(test, path, name):
    """Seconds of a benchmark on a file, and the size that it resizes to, or None."""
    env = dict(os.environ, VAPP_BENCH_IMAGE=path, GOMAXPROCS="1")
    out = subprocess.run([test, "-test.run=^$", f"-test.bench=^BenchmarkFile$/^{name}$", "-test.benchtime=3x"], env=env, check=True,
                         capture_output=True, text=True).stdout
    seconds = float(re.search(r"([\d.]+) cpu-ns/op", out)[1]) / 1e9
    size = [int(float(re.search(rf"([\d.]+) {side}", out)[1])) for side in ("across", "down")] if "across" in out else None
    return seconds, size


def main():
    folder, test = sys.argv[1], os.path.abspath(sys.argv[2])
    os.makedirs(folder, exist_ok=True)
    files = {"420.jpg": {"quality": 90, "subsampling": "4:2:0"}, "444.jpg": {"quality": 90, "subsampling": "4:4:4"},
             "progressive.jpg": {"quality": 90, "progressive": True}, "lossy.webp": {"quality": 80, "method": 0}, "rgb.png": {"compress_level": 1}}
    image = None
    print(f"Pillow {PIL.__version__}, 4000 x 3000 pixels, processor time of one thread; the best of {ROUNDS} rounds in turns")
    for name, options in files.items():
        path = os.path.abspath(os.path.join(folder, "bench-" + name))
        if not os.path.exists(path):
            image = image or picture(4000, 3000)
            image.save(path, **options)
        with open(path, "rb") as f:
            data = f.read()
        compare(test, path, data, name, "decode", 0)
        if name == "420.jpg":
            for rule in RULES:
                compare(test, path, data, name, f"resize-{rule}", 1)
                compare(test, path, data, name, f"all-{rule}", 2)


def compare(test, path, data, name, what, part):
    ours = theirs = 1e9
    size = vapp(test, path, what)[1]
    for _ in range(ROUNDS):
        theirs = min(theirs, pillow(data, size)[part])
        ours = min(ours, vapp(test, path, what)[0])
    to = f" to {size[0]} x {size[1]}" if size else ""
    print(f"{name:16} {len(data) / 1e6:5.1f} MB  {what + to:32} vapp {ours * 1e3:6.1f} ms  Pillow {theirs * 1e3:6.1f} ms  ratio {ours / theirs:.2f}", flush=True)


main()
