// Products of many rows by the warpgroups of sm_90a. Other architectures use linear_tile, also
// sm_100 and sm_120, whose own units are not used.
#include "linear_wide.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

KERNEL(linear_bf16_wide, LinearArgs, 256) { linear_group<WeightsBF16, Wide, 16>(a); }
KERNEL(linear_f16_wide, LinearArgs, 256) { linear_group<WeightsF16, Wide, 16>(a); }
KERNEL(linear_f8_e4m3_wide, LinearArgs, 256) { linear_group<WeightsE4M3, Wide, 16>(a); }
KERNEL(linear_f8_e5m2_wide, LinearArgs, 256) { linear_group<WeightsE5M2, Wide, 16>(a); }
KERNEL(linear_mxfp4_wide, LinearArgs, 256) { linear_group<WeightsMXFP4, Wide, 16>(a); }
KERNEL(linear_q8_0_wide, LinearArgs, 256) { linear_group<WeightsQ8_0, Wide, 16>(a); }
KERNEL(linear_q4_0_wide, LinearArgs, 256) { linear_group<WeightsQ4_0, Wide, 16>(a); }
KERNEL(linear_iq4_nl_wide, LinearArgs, 256) { linear_group<WeightsIQ4_NL, Wide, 16>(a); }
KERNEL(linear_q5_0_wide, LinearArgs, 256) { linear_group<WeightsQ5_0, Wide, 16>(a); }
KERNEL(linear_f8_e4m3_x8_wide, LinearArgs, 256) { linear_group<WeightsE4M3, NarrowE4M3, 16>(a); }

#endif
