// Whose rows a block of a product of experts has.
#pragma once
#include "device.cuh"

// owner_of returns what experts.cu writes of a block: its expert and how many rows there are, the first ones.
DEVICE int owner_of(int expert, int rows) { return rows << 16 | expert; }

// expert_of returns the expert of a block, −1 if it has no rows.
DEVICE int expert_of(int owner) { return owner < 0 ? -1 : owner & 0xffff; }
