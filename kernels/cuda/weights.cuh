// How packed weights become fragments of the matrix units.
//
// A matrix [out, in] is cut into panels of 16 output features, and a panel into steps of 32
// input features. The quants of a step are in the order in which lanes hold them for two
// multiplications of 16 input features: with g = lane/4 and q = lane%4, number 8·t + 2·r + h of
// a lane is output feature g + 8·(r%2) at input feature 16·t + 2·q + 8·(r/2) + h. So a warp
// reads a step contiguously. 16-bit numbers are in two halves, by t. Codes of fewer than 8 bits
// have h = 0 in the lower half of a word and h = 1 in the upper half; those of E2M1 are spread over
// them (WeightsMXFP4). Scales follow the quants
// of each step, or of each 8 steps for blocks of 256 weights. Columns are padded with zeros to
// whole steps. pack.go packs weights; they need as many bytes as the original blocks.
#pragma once
#include "mma.cuh"

// A load that bypasses the first cache: weights are read once.
DEVICE uint4 stream16(const void *p) {
#if defined(__CUDACC__)
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
#else
  return immutable((const uint4 *)p);
#endif
}
DEVICE uint2 stream8(const void *p) {
#if defined(__CUDACC__)
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
#else
  return immutable((const uint2 *)p);
#endif
}

// and_or returns (v & mask) | more in one instruction; for two constants the compiler would use
// two.
DEVICE uint32_t and_or(uint32_t v, uint32_t mask, uint32_t more) {
#if defined(__CUDACC__)
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(v), "r"(mask), "r"(more));
  return d;
#else
  return (v & mask) | more;
#endif
}

// shift_up returns v shifted up by `up` bits.
DEVICE uint32_t shift_up(uint32_t v, int up) { return up < 0 ? v >> -up : v << up; }

// rotate_up returns v rotated up by 1 to 31 bits.
DEVICE uint32_t rotate_up(uint32_t v, int up) { return v << up | v >> (32 - up); }

// The memory that quants are read from.
enum Place { kGlobal, kShared };
template <int P>
DEVICE uint4 load16(const void *p) {
  return P == kGlobal ? stream16(p) : *(const uint4 *)p;
}
template <int P>
DEVICE uint2 load8(const void *p) {
  return P == kGlobal ? stream8(p) : *(const uint2 *)p;
}
template <int P = kGlobal>
DEVICE float half_at(const unsigned char *p) {
  return from_f16(P == kGlobal ? immutable((const uint16_t *)p) : *(const uint16_t *)p);
}

// Factors scale a lane's two output features, g and g+8: x = scale·q + minimum. Formats with
// scales for 16 input features use both of [·][t].
struct Factors {
  float scale[2][2], minimum[2][2];
};

// kBytesOf is the distance from the scales of a feature to the next one's, for formats that
// have them in one piece: factors(unit + kBytesOf·g, step, 0) equals those of (unit, step, g),
// and the address is computed once.
template <class W>
constexpr int kBytesOf = 0;

// kOutputScale is what sums of a format are multiplied with besides the scale of their output, which is
// stored apart; 0: the format has no scales of outputs.
template <class W>
constexpr float kOutputScale = 0;

constexpr uint32_t kMinusZero = 0x80008000u;

// eight_bits converts bytes i and i+1 of word to two bf16: the bits below the sign are shifted
// down by `shift`, and the result is multiplied by power.
DEVICE uint32_t eight_bits(uint32_t word, int i, int shift, uint32_t power) {
  uint32_t v = pick_bytes(word, 0, i == 0 ? 0x1404 : 0x3424);
  return fma_bf16x2((v & 0x80008000u) | (v & 0x7f007f00u) >> shift, power, kMinusZero);
}

// signed_words converts the int8 in the lower bytes of v's halves to two bf16: 128 + (q mod
// 128), minus 128 or 256.
DEVICE uint32_t signed_words(uint32_t v) { return fma_bf16x2(and_or(v, 0x007f007fu, 0x43004300u), 0x3f803f80u, and_or(v, 0x00800080u, 0xc300c300u)); }

// signed_bytes does it for the int8 i and i+1 of word.
DEVICE uint32_t signed_bytes(uint32_t word, int i) { return signed_words(pick_bytes(word, 0, i == 0 ? 0x4140 : 0x4342)); }

template <int Words>
struct Quants {
  uint32_t w[Words];
};

// Sixteen-bit numbers.
struct Plain16 {
  static constexpr int kQuants = 1024, kUnit = 1, kUnitBytes = 1024, kScales = 0;
  static constexpr bool kMinimum = false, kExternal = false;
  using Raw = Quants<8>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    uint4 a = load16<P>(quants + 16 * lane), b = load16<P>(quants + 512 + 16 * lane);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return raw.w[4 * t + r]; }
  METHOD Factors factors(const unsigned char *, int, int) { return {}; }
};
struct WeightsBF16 : Plain16 {
  static constexpr bool kHalf = false;
};
struct WeightsF16 : Plain16 {
  static constexpr bool kHalf = true;
};

// Eight-bit numbers in 16 bytes a lane.
struct Plain8 {
  static constexpr bool kHalf = false;
  using Raw = Quants<4>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    uint4 a = load16<P>(quants + 16 * lane);
    return {{a.x, a.y, a.z, a.w}};
  }
};
// The 8-bit floats; their scales are separate, as F32. A bf16 with the same bits, shifted, is
// the number times a power of two, also for subnormals.
struct WeightsE4M3 : Plain8 {
  static constexpr int kQuants = 512, kUnit = 1, kUnitBytes = 512, kScales = 1;
  static constexpr bool kMinimum = false, kExternal = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return e4m3_as_bf16x2(raw.w[2 * t + r / 2], r % 2);
#else
    return eight_bits(raw.w[2 * t + r / 2], r % 2, 4, 0x7b807b80u);
#endif
  }
  METHOD Factors factors(const unsigned char *, int, int) { return {}; }
};
struct WeightsE5M2 : Plain8 {
  static constexpr int kQuants = 512, kUnit = 1, kUnitBytes = 512, kScales = 1;
  static constexpr bool kMinimum = false, kExternal = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return eight_bits(raw.w[2 * t + r / 2], r % 2, 3, 0x77807780u); }
  METHOD Factors factors(const unsigned char *, int, int) { return {}; }
};
struct WeightsI8 : Plain8 {
  static constexpr int kQuants = 512, kUnit = 1, kUnitBytes = 512, kScales = 1;
  static constexpr bool kMinimum = false, kExternal = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return signed_bytes(raw.w[2 * t + r / 2], r % 2 * 2); }
  METHOD Factors factors(const unsigned char *, int, int) { return {}; }
};
struct WeightsQ8_0 : Plain8 {
  static constexpr int kQuants = 512, kUnit = 1, kUnitBytes = 544, kScales = 1;
  static constexpr bool kMinimum = false, kExternal = false;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return signed_bytes(raw.w[2 * t + r / 2], r % 2 * 2); }
  template <int P = kGlobal>
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    const unsigned char *a = unit + 512 + 2 * g;
    return {{{half_at<P>(a)}, {half_at<P>(a + 16)}}, {}};
  }
};
template <>
constexpr int kBytesOf<WeightsQ8_0> = 2;

// Four-bit codes in 8 bytes a lane.
struct Plain4 {
  static constexpr bool kHalf = false, kExternal = false;
  static constexpr int kQuants = 256, kScales = 1;
  using Raw = Quants<2>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    uint2 a = load8<P>(quants + 8 * lane);
    return {{a.x, a.y}};
  }
  // A bf16 of 128 with a code in its last bits is 128 + q.
  METHOD uint32_t less(const Raw &raw, int t, int r, uint32_t what) { return fma_bf16x2(and_or(raw.w[t] >> (4 * r), 0x000f000fu, 0x43004300u), 0x3f803f80u, what); }
};
struct WeightsMXFP4 : Plain4 {
  static constexpr int kUnit = 1, kUnitBytes = 272;
  static constexpr bool kMinimum = false;
  // Two codes as bf16 that are 2^−126 of their numbers: pack_blocks.go puts most where a rotation
  // and a mask give them.
  METHOD uint32_t code(const Raw &raw, int t, int r) {
    uint32_t w = raw.w[t];
    if (r == 0) return w & 0x81c081c0u;
    if (r < 3) return rotate_up(w, r == 1 ? 4 : 10) & 0x81c081c0u;
    return and_or(rotate_up(w, 14), 0x81808180u, rotate_up(w, 6) & 0x00400040u);
  }
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return fma_bf16x2(code(raw, t, r), 0x7e807e80u, kMinusZero); }
  // 2^(e−1) twice as bf16, for exponents below 129: what code is multiplied with.
  METHOD uint32_t code_power(uint32_t e) { return e * 0x00800080u + 0x3f003f00u; }
  METHOD float power(uint32_t e) {  // 2^(e−127); 255 is NaN
    return __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7fffffffu : e << 23);
  }
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    const unsigned char *a = unit + 256 + g;
    return {{{power(immutable(a))}, {power(immutable(a + 8))}}, {}};
  }
  // 2^(e−127) twice as bf16. Its product with a fragment's number equals that in float32,
  // as in ref: exact from 2^−128 (a subnormal) to 1.5·2^127, and infinite beyond, which
  // only the exponents 253 and 254 reach.
  METHOD uint32_t power_bf16x2(uint32_t e) { return (e == 0 ? 0x40u : e == 255 ? 0x7fffu : e << 7) * 0x10001u; }
};
template <>
constexpr int kBytesOf<WeightsMXFP4> = 1;
// The codes of MXFP4 with a scale in E4M3 for 16 input features. Scales are read as binary16, which
// gives 2^−8 of them; an output's scale makes up for it.
struct WeightsNVFP4 : Plain4 {
  static constexpr int kUnit = 1, kUnitBytes = 288, kScales = 2;
  static constexpr bool kMinimum = false;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return WeightsMXFP4::fragment(raw, t, r); }
  METHOD float e4m3(uint32_t b) { return from_f16(uint16_t((b & 0x80u) << 8 | (b & 0x7fu) << 7)); }
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    Factors f{};
    const unsigned char *a = unit + 256 + 2 * g;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t both = immutable((const uint16_t *)(a + 16 * i));
      f.scale[i][0] = e4m3(both & 0xffu);
      f.scale[i][1] = e4m3(both >> 8);
    }
    return f;
  }
};
template <>
constexpr int kBytesOf<WeightsNVFP4> = 2;
template <>
constexpr float kOutputScale<WeightsNVFP4> = 256;
struct WeightsQ4_0 : Plain4 {
  static constexpr int kUnit = 1, kUnitBytes = 288;
  static constexpr bool kMinimum = false;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return less(raw, t, r, 0xc308c308u); }  // −136
  template <int P = kGlobal>
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    const unsigned char *a = unit + 256 + 2 * g;
    return {{{half_at<P>(a)}, {half_at<P>(a + 16)}}, {}};
  }
};
template <>
constexpr int kBytesOf<WeightsQ4_0> = 2;
struct WeightsQ4_1 : Plain4 {
  static constexpr int kUnit = 1, kUnitBytes = 320;
  static constexpr bool kMinimum = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return less(raw, t, r, 0xc300c300u); }  // −128
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    const unsigned char *a = unit + 256 + 4 * g, *b = a + 32;
    return {{{half_at(a)}, {half_at(b)}}, {{half_at(a + 2)}, {half_at(b + 2)}}};
  }
};
template <>
constexpr int kBytesOf<WeightsQ4_1> = 4;
// Codes with a scale in the upper 24 bits of a word and a zero point in the lower 8: the minimum
// −scale·zero is exact.
struct WeightsI4 : Plain4 {
  static constexpr int kUnit = 1, kUnitBytes = 320;
  static constexpr bool kMinimum = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return WeightsQ4_1::fragment(raw, t, r); }
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    Factors f{};
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t head = immutable((const uint32_t *)(unit + 256 + 32 * i) + g);
      f.scale[i][0] = __uint_as_float(head & 0xffffff00u);
      f.minimum[i][0] = -(f.scale[i][0] * float(int(head & 0xffu)));
    }
    return f;
  }
};
template <>
constexpr int kBytesOf<WeightsI4> = 4;
// The codes of IQ4_NL are indices into a table of int8.
struct WeightsIQ4_NL : Plain4 {
  static constexpr int kUnit = 1, kUnitBytes = 288;
  static constexpr bool kMinimum = false;
  // Four bytes of the table, for the codes in the lower half of v.
  METHOD uint32_t values(uint32_t v) {
    uint32_t low = pick_bytes(0xbfad9881u, 0xf6eaddcfu, v & 0x7777u), high = pick_bytes(0x26190d01u, 0x71594535u, v & 0x7777u);
    return pick_bytes(low, high, 0x3210u | (v & 0x8888u) >> 1);
  }
  METHOD uint32_t fragment(const Raw &raw, int t, int r) {
    uint32_t even = values(raw.w[t]), odd = values(raw.w[t] >> 16);
    return signed_words(pick_bytes(even, odd, 0x0400u + 0x0101u * r));
  }
  template <int P = kGlobal>
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    return WeightsQ4_0::factors<P>(unit, 0, g);
  }
};
template <>
constexpr int kBytesOf<WeightsIQ4_NL> = 2;

// Five-bit codes: as for four bits, then two bytes for each lane with the upper bits, by h.
struct Plain5 {
  static constexpr bool kHalf = false, kExternal = false;
  static constexpr int kQuants = 320, kScales = 1;
  using Raw = Quants<3>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    uint2 a = load8<P>(quants + 8 * lane);
    const uint16_t *high = (const uint16_t *)(quants + 256) + lane;
    return {{a.x, a.y, pick_bytes(P == kGlobal ? immutable(high) : *high, 0, 0x4140)}};
  }
  METHOD uint32_t less(const Raw &raw, int t, int r, uint32_t what) {
    uint32_t low = and_or(raw.w[t] >> (4 * r), 0x000f000fu, 0x43004300u);
    return fma_bf16x2(and_or(shift_up(raw.w[2], 4 - (4 * t + r)), 0x00100010u, low), 0x3f803f80u, what);
  }
};
struct WeightsQ5_0 : Plain5 {
  static constexpr int kUnit = 1, kUnitBytes = 352;
  static constexpr bool kMinimum = false;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return less(raw, t, r, 0xc310c310u); }  // −144
  template <int P = kGlobal>
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    const unsigned char *a = unit + 320 + 2 * g;
    return {{{half_at<P>(a)}, {half_at<P>(a + 16)}}, {}};
  }
};
template <>
constexpr int kBytesOf<WeightsQ5_0> = 2;
struct WeightsQ5_1 : Plain5 {
  static constexpr int kUnit = 1, kUnitBytes = 384;
  static constexpr bool kMinimum = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return less(raw, t, r, 0xc300c300u); }
  METHOD Factors factors(const unsigned char *unit, int, int g) {
    const unsigned char *a = unit + 320 + 4 * g, *b = a + 32;
    return {{{half_at(a)}, {half_at(b)}}, {{half_at(a + 2)}, {half_at(b + 2)}}};
  }
};
template <>
constexpr int kBytesOf<WeightsQ5_1> = 4;

// scales_k reads a row's d, dmin and 12 bytes of eight six-bit scales and minima (ref:
// ScaleMinQ4_K). The two are in the halves of a word, as bf16 that are 128 too large. What
// depends only on j is shared by all rows.
DEVICE void scales_k(const unsigned char *p, unsigned j, float *scale, float *minimum) {
  uint4 v = immutable((const uint4 *)p);
  bool late = j >= 4;
  uint32_t first = pick_bytes(v.y, v.z, 0x0400u + 0x0101u * (j % 4)) >> (late ? 2 : 0);
  uint32_t last = pick_bytes(v.w, 0, 0x4440u + j % 4) * 0x1001u;  // a byte, and its upper half in the upper half
  uint32_t both = and_or(last, late ? 0x000f000fu : 0, and_or(first, late ? 0x00300030u : 0x003f003fu, 0x43004300u));
  both = fma_bf16x2(both, 0x3f803f80u, 0xc300c300u);
  *scale = from_f16(uint16_t(v.x)) * __uint_as_float(both << 16);
  *minimum = -(from_f16(uint16_t(v.x >> 16)) * __uint_as_float(both & 0xffff0000u));
}
struct WeightsQ4_K : Plain4 {
  static constexpr int kUnit = 8, kUnitBytes = 2304;
  static constexpr bool kMinimum = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return less(raw, t, r, 0xc300c300u); }
  METHOD Factors factors(const unsigned char *unit, unsigned step, int g) {
    Factors f;
    const unsigned char *a = unit + 2048 + 16 * g;
    scales_k(a, step, &f.scale[0][0], &f.minimum[0][0]);
    scales_k(a + 128, step, &f.scale[1][0], &f.minimum[1][0]);
    return f;
  }
};
template <>
constexpr int kBytesOf<WeightsQ4_K> = 16;
struct WeightsQ6_K {
  static constexpr bool kHalf = false, kExternal = false, kMinimum = false;
  static constexpr int kQuants = 384, kUnit = 8, kUnitBytes = 3360, kScales = 2;
  using Raw = Quants<3>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    uint2 a = load8<P>(quants + 8 * lane);
    return {{a.x, a.y, P == kGlobal ? immutable((const uint32_t *)(quants + 256) + lane) : ((const uint32_t *)(quants + 256))[lane]}};
  }
  METHOD uint32_t fragment(const Raw &raw, int t, int r) {
    uint32_t low = and_or(raw.w[t] >> (4 * r), 0x000f000fu, 0x43004300u);
    return fma_bf16x2(and_or(shift_up(raw.w[2], 4 - 2 * (4 * t + r)), 0x00300030u, low), 0x3f803f80u, 0xc320c320u);  // −160
  }
  METHOD Factors factors(const unsigned char *unit, unsigned step, int g) {
    Factors f{};
    const unsigned char *whole = unit + 3072 + 256 + 2 * g;
    const unsigned char *scales = unit + 3072 + 16 * g + 2 * step;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float d = half_at(whole + 16 * i);
      uint32_t both = immutable((const uint16_t *)(scales + 128 * i));
      f.scale[i][0] = d * float(int8_t(both));
      f.scale[i][1] = d * float(int8_t(both >> 8));
    }
    return f;
  }
};
struct WeightsQ5_K : Plain5 {
  static constexpr int kUnit = 8, kUnitBytes = 2816;
  static constexpr bool kMinimum = true;
  METHOD uint32_t fragment(const Raw &raw, int t, int r) { return less(raw, t, r, 0xc300c300u); }
  METHOD Factors factors(const unsigned char *unit, unsigned step, int g) {
    Factors f;
    const unsigned char *a = unit + 2560 + 16 * g;
    scales_k(a, step, &f.scale[0][0], &f.minimum[0][0]);
    scales_k(a + 128, step, &f.scale[1][0], &f.minimum[1][0]);
    return f;
  }
};
template <>
constexpr int kBytesOf<WeightsQ5_K> = 16;

// Two-bit codes in 4 bytes for each lane; 16 share a scale.
struct WeightsQ2_K {
  static constexpr bool kHalf = false, kExternal = false, kMinimum = true;
  static constexpr int kQuants = 128, kUnit = 8, kUnitBytes = 1344, kScales = 2;
  using Raw = Quants<1>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    return {{P == kGlobal ? immutable((const uint32_t *)quants + lane) : ((const uint32_t *)quants)[lane]}};
  }
  METHOD uint32_t fragment(const Raw &raw, int t, int r) {
    return fma_bf16x2(and_or(raw.w[0] >> (2 * (4 * t + r)), 0x00030003u, 0x43004300u), 0x3f803f80u, 0xc300c300u);
  }
  METHOD Factors factors(const unsigned char *unit, unsigned step, int g) {
    Factors f;
    const unsigned char *whole = unit + 1024 + 256 + 4 * g, *scales = unit + 1024 + 16 * g + 2 * step;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t both = immutable((const uint32_t *)(whole + 32 * i)), v = immutable((const uint16_t *)(scales + 128 * i));
      float d = from_f16(uint16_t(both)), least = from_f16(uint16_t(both >> 16));
      f.scale[i][0] = d * float(v & 15);
      f.scale[i][1] = d * float(v >> 8 & 15);
      f.minimum[i][0] = -(least * float(v >> 4 & 15));
      f.minimum[i][1] = -(least * float(v >> 12));
    }
    return f;
  }
};
// Three-bit codes: as for two bits, then two bytes for each lane with the upper bits, by h.
struct WeightsQ3_K {
  static constexpr bool kHalf = false, kExternal = false, kMinimum = false;
  static constexpr int kQuants = 192, kUnit = 8, kUnitBytes = 1760, kScales = 2;
  using Raw = Quants<2>;
  template <int P>
  METHOD Raw load(const unsigned char *quants, int lane) {
    const uint16_t *high = (const uint16_t *)(quants + 128) + lane;
    return {{P == kGlobal ? immutable((const uint32_t *)quants + lane) : ((const uint32_t *)quants)[lane], pick_bytes(P == kGlobal ? immutable(high) : *high, 0, 0x4140)}};
  }
  METHOD uint32_t fragment(const Raw &raw, int t, int r) {
    uint32_t low = and_or(raw.w[0] >> (2 * (4 * t + r)), 0x00030003u, 0x43004300u);
    return fma_bf16x2(and_or(shift_up(raw.w[1], 2 - (4 * t + r)), 0x00040004u, low), 0x3f803f80u, 0xc304c304u);  // −132
  }
  METHOD Factors factors(const unsigned char *unit, unsigned step, int g) {
    Factors f{};
    const unsigned char *whole = unit + 1536 + 192 + 2 * g, *scales = unit + 1536 + 12 * g;
    const unsigned char *lower = scales + step % 4 * 2, *upper = scales + 8 + step % 2 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float d = half_at(whole + 16 * i);
      uint32_t low = immutable((const uint16_t *)(lower + 96 * i)) >> (step / 4 * 4) & 0x0f0fu;
      uint32_t high = uint32_t(immutable((const uint16_t *)(upper + 96 * i))) << 4 >> (step / 2 * 2);
      uint32_t both = fma_bf16x2(pick_bytes(and_or(high, 0x3030u, low), 0x43u, 0x4140), 0x3f803f80u, 0xc320c320u);  // −160
      f.scale[i][0] = d * __uint_as_float(both << 16);
      f.scale[i][1] = d * __uint_as_float(both & 0xffff0000u);
    }
    return f;
  }
};
