// Conversions between float32 and the bits of bf16, fp16 and 8-bit floats. Every rounding is to
// nearest, ties to even, as in kernels/ref.
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
// to_bf16x2 stores lo in the lower half.
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
// to_e4m3 and to_e5m2 saturate at the largest number.
DEVICE uint8_t to_e4m3(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }
DEVICE uint8_t to_e5m2(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E5M2); }
// e4m3_as_f16x2 converts the two lower bytes of v to fp16. A NaN becomes 480.
DEVICE uint32_t e4m3_as_f16x2(uint32_t v) {
  uint32_t bytes = __byte_perm(v, 0, 0x1404), d;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"((bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 1), "r"(0x5c005c00u));
  return d;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// e4m3_as_bf16x2 converts the two lower or the two upper bytes of v to bf16, by the units for
// conversions.
DEVICE uint32_t e4m3_as_bf16x2(uint32_t v, bool upper) {
  uint32_t h, d;
  if (upper)
    asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %1;\ncvt.rn.f16x2.e4m3x2 %0, u;\n}\n" : "=r"(h) : "r"(v));
  else
    asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %1;\ncvt.rn.f16x2.e4m3x2 %0, l;\n}\n" : "=r"(h) : "r"(v));
  asm("{\n.reg .b16 l, u;\n.reg .f32 x, y;\nmov.b32 {l, u}, %1;\ncvt.f32.f16 x, l;\ncvt.f32.f16 y, u;\ncvt.rn.bf16x2.f32 %0, y, x;\n}\n" : "=r"(d) : "r"(h));
  return d;
}
#endif
// fma_bf16x2 returns a·b + c for both halves, including subnormals.
DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// pick_bytes builds a word of four of the eight bytes of lo and hi (PTX: prmt).
DEVICE uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t which) { return __byte_perm(lo, hi, which); }

#else

static inline uint16_t to_bf16(float v) {
  uint32_t u = __float_as_uint(v);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
static inline uint32_t to_bf16x2(float lo, float hi) { return to_bf16(lo) | uint32_t(to_bf16(hi)) << 16; }
static inline float from_f16(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, v = uint32_t(h & 0x7fff) << 13;
  if (v >= 31u << 23) return __uint_as_float(sign | v | 0x7f800000);
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(v) * 0x1p112f));
}
// nearest rounds m ≥ 0 to `bits` fraction bits; 2^smallest is the smallest normal number. It
// returns exponent and fraction, concatenated.
static inline uint32_t nearest(float m, int bits, int smallest) {
  uint32_t u = __float_as_uint(m), shift = 23 - uint32_t(bits), normal = uint32_t(smallest + 127);
  if (u < normal << 23) {
    float ulp = __uint_as_float((normal + shift) << 23);  // its last place is that of the format
    return __float_as_uint(m + ulp) - __float_as_uint(ulp);
  }
  u += (1u << (shift - 1)) - 1 + (u >> shift & 1);
  return (u >> shift) - ((normal - 1) << bits);
}
static inline uint16_t to_f16(float v) {
  uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (v != v) return 0x7fff;
  return sign | (fabsf(v) >= 65520.0f ? 0x7c00 : uint16_t(nearest(fabsf(v), 10, -14)));
}
static inline uint32_t to_f16x2(float lo, float hi) { return to_f16(lo) | uint32_t(to_f16(hi)) << 16; }
static inline float from_e4m3(uint8_t v) {
  if ((v & 127) == 127) return NAN;
  float m = __uint_as_float(uint32_t(v & 127) << 20) * 0x1p120f;
  return v & 128 ? -m : m;
}
static inline float from_e5m2(uint8_t v) { return from_f16(uint16_t(v) << 8); }
static inline uint8_t to_e4m3(float v) {
  uint8_t sign = std::signbit(v) ? 0x80 : 0;
  return sign | (v != v ? 0x7f : uint8_t(nearest(std::min(fabsf(v), 448.0f), 3, -6)));
}
static inline uint8_t to_e5m2(float v) {
  uint8_t sign = std::signbit(v) ? 0x80 : 0;
  return sign | (v != v ? 0x7e : uint8_t(nearest(std::min(fabsf(v), 57344.0f), 2, -14)));
}
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

// Storage formats of K, V and table rows; the order is that of Store in doc.go.
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
