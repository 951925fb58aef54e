// RMSNorm with an optional residual, offset weights, a gate and segments; LayerNorm; sums and
// concatenation of rows.
#include "rows.cuh"

struct NormArgs {
  const void *x;      // [rows, cols]
  float *residual;    // [rows, cols] or null: x is added to it, and the sum is normalized
  const float *w;     // [segment] or null: ones
  const float *bias;  // [segment] or null; only with plain
  const float *gate;  // [rows, cols] or null: the result is multiplied by silu(gate)
  float *y;           // [rows, cols], may be x
  int cols, segment;  // segment divides cols
  float eps, offset, scale;
  int plain;  // 1: LayerNorm
  int x_bf16, pad;  // 1: x is bf16, and not y
};

// norm: a block of whole warps for each segment of a row. The second pass reads the row again,
// from the cache.
KERNEL(norm, NormArgs, 1024) {
  __shared__ float scratch[32];
  size_t at = size_t(blockIdx.x) * a.segment;
  Numbers x = Numbers{a.x, a.x_bf16 != 0} + at;
  float *r = a.residual ? a.residual + at : nullptr;
  float sum = 0.0f, total = 0.0f;
  for (int i = threadIdx.x; i < a.segment; i += blockDim.x) {
    float v = x[i];
    if (r) {
      v += r[i];
      r[i] = v;
    }
    total += v;
    sum = fmaf(v, v, sum);
  }
  Numbers in = r ? Numbers{r, false} : x;
  float mean = 0.0f;
  if (a.plain) {  // the moments in two passes: one pass loses precision around a large mean
    mean = block_sum(total, scratch) / float(a.segment);
    sum = 0.0f;
    for (int i = threadIdx.x; i < a.segment; i += blockDim.x) sum = fmaf(in[i] - mean, in[i] - mean, sum);
  }
  float inverse = 1.0f / sqrtf(block_sum(sum, scratch) / float(a.segment) + a.eps);
  for (int i = threadIdx.x; i < a.segment; i += blockDim.x) {
    float v = (in[i] - mean) * inverse;
    if (a.w) v *= a.offset + a.w[i];
    if (a.bias) v += a.bias[i];
    v *= a.scale;
    if (a.gate) {
      float g = a.gate[at + i];
      v *= g / (1.0f + expf(-g));
    }
    a.y[at + i] = v;
  }
}

// norm_rows: norm of whole rows, without a gate and not plain, with the bits of norm_pack. A block for each row.
KERNEL(norm_rows, NormArgs, kPackThreads) {
  __shared__ float scratch[32];
  size_t at = size_t(blockIdx.x) * a.cols;
  Numbers x = Numbers{a.x, a.x_bf16 != 0} + at;
  float *r = a.residual ? a.residual + at : nullptr;
  float sum = 0.0f;
  each_number(a.cols, [&](int i) {
    float v = x[i];
    if (r) r[i] = v = r[i] + v;
    sum = fmaf(v, v, sum);
  });
  Numbers in = r ? Numbers{r, false} : x;
  float inverse = 1.0f / sqrtf(block_sum(sum, scratch) / float(a.cols) + a.eps) * a.scale;
  each_number(a.cols, [&](int i) {
    float v = in[i] * inverse;
    a.y[at + i] = a.w ? v * (a.offset + a.w[i]) : v;
  });
}

struct AddArgs {
  const void *x;
  float *into;         // into = (into + x) · scale[0]
  const float *scale;  // null: 1
  long long n;
  int x_bf16, pad;  // 1: x is bf16
};

KERNEL(add, AddArgs, 256) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.n) return;
  float v = a.into[i] + Numbers{a.x, a.x_bf16 != 0}[i];
  a.into[i] = a.scale ? v * a.scale[0] : v;
}

struct ConcatArgs {
  const float *a, *b;  // [rows, na], [rows, nb]
  float *y;            // [rows, na+nb]
  int na, nb;
};

// reorder: column i of the nb columns of y is column b[i] of a. A block for each row.
KERNEL(reorder, ConcatArgs, 256) {
  size_t r = blockIdx.x;
  for (int i = threadIdx.x; i < a.nb; i += blockDim.x) a.y[r * a.nb + i] = a.a[r * a.na + int(a.b[i])];
}

// concat: a block for each row.
KERNEL(concat, ConcatArgs, 256) {
  size_t r = blockIdx.x;
  for (int i = threadIdx.x; i < a.na + a.nb; i += blockDim.x)
    a.y[r * (a.na + a.nb) + i] = i < a.na ? a.a[r * a.na + i] : a.b[r * a.nb + i - a.na];
}

struct SumRanksArgs {
  const float *x;  // [world, part]
  float *y;        // [n]
  long long n;
  int rank, world;
};

// sum_ranks: y's part of this rank is the sum of all ranks' numbers, in the order of ranks. A
// thread for each number of the part.
KERNEL(sum_ranks, SumRanksArgs, 256) {
  long long begin = a.n * a.rank / a.world, part = a.n * (a.rank + 1) / a.world - begin;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= part) return;
  float sum = a.x[i];
  for (int r = 1; r < a.world; r++) sum += a.x[r * part + i];
  a.y[begin + i] = sum;
}

struct JoinRanksArgs {
  const float *x;  // [world, rows, cols]
  float *y;        // [rows, world·cols]
  int cols, world, rows;
};

// join_ranks puts the ranks' rows side by side. A block for each row.
KERNEL(join_ranks, JoinRanksArgs, 256) {
  size_t r = blockIdx.x, all = size_t(a.world) * a.cols;
  for (size_t i = threadIdx.x; i < all; i += blockDim.x) a.y[r * all + i] = a.x[(i / a.cols * a.rows + r) * a.cols + i % a.cols];
}
