// Where the numbers of X are, packed for a product with 16-bit inputs (pack.cu).
#pragma once
#include "numbers.cuh"

// word_at returns the index of the word that holds columns col, which is even, and col+1 of a row of X. words is
// PackArgs.words; in is the number of columns, whole steps if words is 2.
DEVICE size_t word_at(int words, int in, int row, int col) {
  if (words == 2) return (size_t(row) * in + col) / 2;
  int lane = row % 8 * 4 + col / 2 % 4, i = col / 8 % 4;
  return (size_t(row / 8) * ceil_div(in, 32) + col / 32) * 128 + (words ? 32 * i + lane : 4 * lane + i);
}

// packed_pair returns two numbers as a word of packed X: above the largest fp16 there is only infinity.
DEVICE uint32_t packed_pair(int f16, float lo, float hi) {
  if (!f16) return to_bf16x2(lo, hi);
  return to_f16x2(fminf(fmaxf(lo, -65504.0f), 65504.0f), fminf(fmaxf(hi, -65504.0f), 65504.0f));
}
