// Number types as bits: bf16, fp16 and the 8-bit floats to and from float32. Every
// rounding is to the nearest, ties to even, as kernels/ref has it.
#pragma once
#include "device.cuh"
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

DEVICE float from_bf16(uint16_t v) { return __uint_as_float(uint32_t(v) << 16); }

#if defined(__CUDACC__)

DEVICE uint16_t to_bf16(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
// to_bf16x2 has lo in the lower half.
DEVICE uint32_t to_bf16x2(float lo, float hi) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}
DEVICE float from_f16(uint16_t v) { return __half2float(__ushort_as_half(v)); }
DEVICE uint16_t to_f16(float v) { return __half_as_ushort(__float2half_rn(v)); }
DEVICE uint32_t to_f16x2(float lo, float hi) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}
DEVICE float from_e4m3(uint8_t v) { return from_f16(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3).x); }
DEVICE float from_e5m2(uint8_t v) { return from_f16(uint16_t(v) << 8); }
// to_e4m3 and to_e5m2 saturate: what lies beyond the largest number becomes it.
DEVICE uint8_t to_e4m3(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }
DEVICE uint8_t to_e5m2(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E5M2); }
// fma_bf16x2 is a·b + c of both halves, subnormal numbers included.
DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// pick_bytes makes a word of four of the eight bytes of lo and hi (PTX: prmt).
DEVICE uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t which) { return __byte_perm(lo, hi, which); }

#else

static inline uint16_t to_bf16(float v) {
  uint32_t u = __float_as_uint(v);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
static inline uint32_t to_bf16x2(float lo, float hi) { return to_bf16(lo) | uint32_t(to_bf16(hi)) << 16; }
static inline float from_f16(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
  float v = exponent ? ldexpf(float(fraction | 0x400), int(exponent) - 25) : ldexpf(float(fraction), -24);
  return sign ? -v : v;
}
static inline uint16_t to_f16(float v) {
  uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  float m = fabsf(v);
  if (v != v) return 0x7fff;
  if (m >= 65520.0f) return sign | 0x7c00;
  if (m < ldexpf(1, -14)) return sign | uint16_t(nearbyintf(ldexpf(m, 24)));
  int e = ilogbf(m);
  uint32_t q = uint32_t(nearbyintf(ldexpf(m, 10 - e)));  // 1024 to 2048
  return sign | uint16_t((uint32_t(e + 14) << 10) + q);  // 2048 carries into the exponent
}
static inline uint32_t to_f16x2(float lo, float hi) { return to_f16(lo) | uint32_t(to_f16(hi)) << 16; }
static inline float from_e4m3(uint8_t v) {
  int exponent = v >> 3 & 15, fraction = v & 7;
  if ((v & 127) == 127) return NAN;
  float m = exponent ? ldexpf(float(fraction + 8), exponent - 10) : ldexpf(float(fraction), -9);
  return v & 128 ? -m : m;
}
static inline float from_e5m2(uint8_t v) { return from_f16(uint16_t(v) << 8); }
// nearest_fp8 rounds to a format with this many bits of fraction whose smallest normal
// number has this exponent.
static inline uint8_t nearest_fp8(float v, int bits, int smallest, float most, uint8_t nan) {
  uint8_t sign = std::signbit(v) ? 0x80 : 0;
  if (v != v) return nan | sign;
  float m = std::min(fabsf(v), most);
  int e = m == 0 ? smallest : std::max(ilogbf(m), smallest);
  uint32_t q = uint32_t(nearbyintf(ldexpf(m, bits - e)));
  return sign | uint8_t((uint32_t(e - smallest) << bits) + q);
}
static inline uint8_t to_e4m3(float v) { return nearest_fp8(v, 3, -6, 448, 0x7f); }
static inline uint8_t to_e5m2(float v) { return nearest_fp8(v, 2, -14, 57344, 0x7e); }
static inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  auto half = [&](int shift) {
    return to_bf16(float(double(from_bf16(uint16_t(a >> shift))) * from_bf16(uint16_t(b >> shift)) + from_bf16(uint16_t(c >> shift))));
  };
  return half(0) | uint32_t(half(16)) << 16;
}
static inline uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t which) {
  uint64_t both = lo | uint64_t(hi) << 32;
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) out |= uint32_t(both >> (8 * (which >> (4 * i) & 7)) & 255) << (8 * i);
  return out;
}

#endif

// Formats of K, V and table rows as kernels are told them; the order is kernels.go's
// of this folder (Store).
enum Store { kF32, kF16, kBF16, kE4M3, kE5M2 };

template <int S>
struct Stored;
template <>
struct Stored<kF32> {
  using type = float;
  METHOD float read(float v) { return v; }
  METHOD float write(float v) { return v; }
};
template <>
struct Stored<kF16> {
  using type = uint16_t;
  METHOD float read(uint16_t v) { return from_f16(v); }
  METHOD uint16_t write(float v) { return to_f16(v); }
};
template <>
struct Stored<kBF16> {
  using type = uint16_t;
  METHOD float read(uint16_t v) { return from_bf16(v); }
  METHOD uint16_t write(float v) { return to_bf16(v); }
};
template <>
struct Stored<kE4M3> {
  using type = uint8_t;
  METHOD float read(uint8_t v) { return from_e4m3(v); }
  METHOD uint8_t write(float v) { return to_e4m3(v); }
};
template <>
struct Stored<kE5M2> {
  using type = uint8_t;
  METHOD float read(uint8_t v) { return from_e5m2(v); }
  METHOD uint8_t write(float v) { return to_e5m2(v); }
};
