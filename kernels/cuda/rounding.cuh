// How the numbers of X are rounded to 8 bits.
#pragma once
#include "numbers.cuh"

// The 8-bit formats that X is rounded to.
struct CodesE4M3 {
  METHOD float most() { return 448.0f; }
  METHOD uint32_t code(float v) { return to_e4m3(v); }
};
struct CodesI8 {
  METHOD float most() { return 127.0f; }
  METHOD uint32_t code(float v) { return uint32_t(int(rintf(fminf(fmaxf(v, -128.0f), 127.0f)))) & 255u; }
};

// Rounding is the factor for a group's numbers, and the scale that gives them back
// (kernels/ref: RoundRow).
template <class Codes>
struct Rounding {
  float by, scale;
  DEVICE_METHOD explicit Rounding(uint32_t most) : by(0.0f), scale(0.0f) {
    float m = __uint_as_float(most);
    if (most >= 0x7f800000u) {
      scale = __uint_as_float(0x7fffffffu);
    } else if (m >= 7.888609e-31f) {  // 2⁻¹⁰⁰
      by = Codes::most() / m;
      scale = m / Codes::most();
    }
  }
};

// codes_of returns four numbers as a word; by is the Rounding's factor.
template <class Codes>
DEVICE uint32_t codes_of(float2 u, float2 v, float by) {
  return by == 0.0f ? 0u : Codes::code(u.x * by) | Codes::code(u.y * by) << 8 | Codes::code(v.x * by) << 16 | Codes::code(v.y * by) << 24;
}
