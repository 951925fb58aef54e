#!/usr/bin/env python3
"""Write the grids of GGUF's IQ formats, as the gguf package has them, for Go and for C.

    pip install gguf==0.19.0 numpy==2.4.6
    python grids.py          # ../grids.bin and ../../cpu/native/formats/grids.c

A grid entry is a word: eight indices of two bits, or four of four bits, the first in the lowest
bits. An index is the place of a value in the format's list of values.
"""

import pathlib

import gguf.quants
import numpy as np

GRIDS = (("iq2_xxs", 2), ("iq2_xs", 2), ("iq2_s", 2), ("iq1_s", 2), ("iq3_xxs", 4), ("iq3_s", 4))

HEADER = """/* grids.c: the grids of grids.h, written by kernels/ref/testdata/grids.py. */
#include "../shared/grids.h"
"""


def words(name, bits):
    kind = getattr(gguf.quants, name.upper())
    kind.init_grid()
    index = {v: i for i, v in enumerate(kind.grid_map)}
    rows = kind.grid.reshape(kind.grid_shape).astype(int)
    return [sum(index[v] << (bits * i) for i, v in enumerate(row)) for row in rows]


def main():
    here = pathlib.Path(__file__).parent
    all, text = [], HEADER
    for name, bits in GRIDS:
        w = words(name, bits)
        all += w
        text += f"\nconst uint16_t vapp_grid_{name}[{len(w) + 1}] = {{"
        for i, x in enumerate(w + [0]):
            text += ("\n\t" if i % 16 == 0 else " ") + f"{x},"
        text += "\n};\n"
    (here / "../grids.bin").write_bytes(np.array(all, dtype="<u2").tobytes())
    (here / "../../cpu/native/formats/grids.c").write_text(text)


main()
