"""Pictures by formula: those of pictures_test.go, byte for byte."""

import numpy as np


def picture(width, height, seed=0):
    """[height, width, 3] bytes: squares of noise, of ramps, of a fine checkerboard and of both."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint32), np.arange(width, dtype=np.uint32), np.arange(3, dtype=np.uint32), indexing="ij", sparse=True)
    h = x * np.uint32(2654435761) ^ y * np.uint32(2246822519) ^ (c + np.uint32(seed)) * np.uint32(3266489917)
    h ^= h >> 15
    h *= np.uint32(2246822519)
    noise = (h ^ h >> 13) >> 24
    ramp = (x * (c + 3) + y * (5 - c) >> 2) & 255
    board = np.where(((x >> 2) ^ (y >> 2)) & 1, np.uint32(255), np.uint32(0)) + 0 * c
    kind = ((x >> 5) + (y >> 5) + np.uint32(seed)) & 3
    return np.choose(np.broadcast_to(kind, noise.shape), [noise, np.broadcast_to(ramp, noise.shape), board, ramp ^ noise >> 3]).astype(np.uint8)
