// Products of 9 to 64 rows with quantized weights by the warpgroups of sm_90a. A weight is
// converted once for all rows of a block; two blocks run on a multiprocessor.
#include "linear_wide.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define LINEAR_GROUP(name, W, X, N) KERNEL_PREFETCH(name, LinearArgs, 256, 2, GroupPrefetch<W, X, N>) { linear_group<W, X, N>(a); }
#define LINEAR_MID(name, W, X)                \
  LINEAR_GROUP(linear_##name##_mid_16, W, X, 2) \
  LINEAR_GROUP(linear_##name##_mid_32, W, X, 4) \
  LINEAR_GROUP(linear_##name##_mid_64, W, X, 8)
LINEAR_MID(f8_e4m3, WeightsE4M3, Wide)
LINEAR_MID(mxfp4, WeightsMXFP4, Wide)
LINEAR_MID(q8_0, WeightsQ8_0, Wide)
LINEAR_MID(q4_0, WeightsQ4_0, Wide)
LINEAR_MID(iq4_nl, WeightsIQ4_NL, Wide)
LINEAR_MID(f8_e4m3_x8, WeightsE4M3, NarrowE4M3)

#endif
