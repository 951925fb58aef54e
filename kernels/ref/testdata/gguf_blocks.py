#!/usr/bin/env python3
"""Record what the gguf package makes of random blocks, for quant_test.go.

    pip install gguf==0.19.0 numpy==2.4.6
    python gguf_blocks.py | gzip -9n > gguf_blocks.json.gz

For each format: "blocks" are stored bytes, "digests" the first 8 bytes of the SHA-256 of
each block's float32 values, zeros without a sign. For the formats that quantize: "input"
float32, "stored" what it is quantized to. All are base64 of little-endian bytes.
"""

import base64
import hashlib
import json
import sys

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType
BLOCKS = 12
# Offsets of the float16 fields of a block; random bits there would be NaN.
HALVES = {Q.Q8_0: [0], Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q4_K: [0, 2], Q.Q6_K: [208],
          Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q2_K: [80, 82], Q.Q3_K: [108], Q.Q5_K: [0, 2], Q.IQ4_NL: [0]}
# Those of formats that were added later: their numbers come from a generator of their own.
LATER = {Q.IQ4_XS: [0], Q.IQ3_XXS: [0], Q.IQ3_S: [0], Q.IQ2_XXS: [0], Q.IQ2_XS: [0], Q.IQ2_S: [0],
         Q.IQ1_S: [0], Q.IQ1_M: None, Q.TQ1_0: [52], Q.TQ2_0: [64]}


def text(a):
    return base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()


def put(kind, blocks, at, scales):
    if kind == Q.IQ1_M:  # four bits of the half are the upper bits of each of four words
        words, bits = blocks[:, 48:56].view(np.uint16), scales.view(np.uint16)
        for i in range(4):
            words[:, i] = words[:, i] & 0x0FFF | (bits >> (4 * i) & 15) << 12
        blocks[:, 48:56] = words.view(np.uint8)
        return
    blocks[:, at : at + 2] = scales.view(np.uint8).reshape(len(scales), 2)


def record(rng, formats, count, out):
    for kind, offsets in formats.items():
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in offsets or [0]:
            scales = (rng.standard_normal(count) * 0.01).astype(np.float16)
            scales[:3] = [0, 6e-8, -65504]  # zero, the smallest subnormal, the largest
            put(kind, blocks, at, scales)
        values = gguf.dequantize(blocks, kind).astype(np.float32)
        digests = b"".join(hashlib.sha256((v + 0.0).tobytes()).digest()[:8] for v in values.reshape(count, -1))
        out[kind.name] = {"blocks": text(blocks), "digests": base64.b64encode(digests).decode()}


def main():
    rng = np.random.default_rng(20)
    out = {}
    record(rng, HALVES, BLOCKS, out)
    for kind in (Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1):
        x = (rng.standard_normal((64, 32)) * rng.lognormal(0, 3, (64, 1))).astype(np.float32)
        x[0] = 0
        x[1] = 0.25
        x[2, ::2] = 0
        entry = out.setdefault(kind.name, {})
        entry["input"], entry["stored"] = text(x), text(gguf.quantize(x, kind))
    record(np.random.default_rng(21), LATER, 6, out)
    json.dump(out, sys.stdout, indent=1)
    print()


main()
