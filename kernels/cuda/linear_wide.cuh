// What the products by warpgroups of sm_90a have in common: W goes from shared memory through
// registers, where it is converted; the units read X from shared memory.
#pragma once
#include "linear_tile.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// How a format is multiplied: in fp16, in bf16, or with X as E4M3 too.
template <class W, class X, int N>
DEVICE void wgmma(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int add) {
  if constexpr (X::kScaled)
    wgmma_e4m3(d, a, b, add);
  else if constexpr (W::kHalf)
    wgmma_f16(d, a, b, add);
  else
    wgmma_bf16(d, a, b, add);
}

// The number of columns that share a scale and are summed separately; 0: all are summed
// together. A power-of-two scale is multiplied into the fragments, which stay exact.
template <class W>
constexpr bool kPowers = false;
template <>
constexpr bool kPowers<WeightsMXFP4> = true;
template <class W>
constexpr int kApart = W::kScales == 0 || kPowers<W> ? 0 : W::kExternal ? 128 : 32;

// Exponents are those of a lane's two features at a step of a panel.
struct Exponents {
  uint32_t of[2];
};
template <class W>
DEVICE Exponents exponents(const unsigned char *unit, int lane) {
  return {{unit[W::kQuants + (lane >> 2)], unit[W::kQuants + (lane >> 2) + 8]}};
}

// wide_fragments returns the fragments of a step of a panel in shared memory. For weights with
// powers of two `small` says that all exponents of the warp are below 128, scales below 2: then one
// multiplication gives the same numbers.
template <class W, class X>
DEVICE Fragments<W, X> wide_fragments(const unsigned char *unit, int lane, const Exponents &e, bool small) {
  typename W::Raw raw = W::template load<kShared>(unit, lane);
  if constexpr (kPowers<W>) {
    Fragments<W, X> f;
    if (small) {
      const uint32_t power[2] = {W::code_power(e.of[0]), W::code_power(e.of[1])};
#pragma unroll
      for (int i = 0; i < 8; i++) f.w[i / 4][i % 4] = fma_bf16x2(W::code(raw, i / 4, i % 4), power[i % 2], kMinusZero);
    } else {
      const uint32_t power[2] = {W::power_bf16x2(e.of[0]), W::power_bf16x2(e.of[1])};
#pragma unroll
      for (int i = 0; i < 8; i++) f.w[i / 4][i % 4] = fma_bf16x2(W::fragment(raw, i / 4, i % 4), power[i % 2], kMinusZero);
    }
    return f;
  } else {
    return fragments<W, X>(raw);
  }
}

#endif
