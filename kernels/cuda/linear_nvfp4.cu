// Products with weights in NVFP4.
#include "linear_tile.cuh"

LINEAR(nvfp4, WeightsNVFP4, 4, 1)
