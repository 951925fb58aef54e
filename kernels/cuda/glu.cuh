// Activations and gated activations of one element.
#pragma once
#include "numbers.cuh"

// The order is that of engine/backend's Act.
enum Act { kSiLU, kGELUTanh, kGELU };

DEVICE float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

DEVICE float activation(int act, float v) {
  if (act == kSiLU) return v * sigmoid(v);
  // (1 + tanh x)/2 is sigmoid(2x), which is exact enough when tanh is near −1.
  if (act == kGELUTanh) return v * sigmoid(2.0f * 0.7978845608028654f * (v + 0.044715f * v * v * v));
  return 0.5f * v * (1.0f + erff(v * 0.7071067811865476f));
}

struct GLUArgs {
  const void *x;   // [rows, 2·cols]: gate, then up; paired: interleaved
  float *y;        // [rows, cols]
  int rows, cols;
  int act, paired;
  float limit, alpha, shift;  // gpt-oss; limit 0: no clamp; alpha 1 and shift 0: none
  int x_bf16;  // 1: x is bf16
};

DEVICE float gated_activation(const GLUArgs &a, float g, float u) {
  if (a.limit > 0.0f) {
    g = fminf(g, a.limit);
    u = fmaxf(-a.limit, fminf(u, a.limit));
  }
  float v = a.act == kSiLU ? g * sigmoid(g * a.alpha) : activation(a.act, g);
  return (u + a.shift) * v;
}
