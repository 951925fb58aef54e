// Products with blocks of 256.
#include "linear_tile.cuh"

LINEAR(q2_k, WeightsQ2_K, 4, 1)
LINEAR(q3_k, WeightsQ3_K, 4, 1)
LINEAR(q4_k, WeightsQ4_K, 4, 1)
LINEAR(q5_k, WeightsQ5_K, 4, 1)
LINEAR(q6_k, WeightsQ6_K, 2, 1)
