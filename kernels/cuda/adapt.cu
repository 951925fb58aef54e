// Low-rank adapters of the results of a product. A row with slot s gets y += b[s]·(a[s]·x), in two
// kernels: adapt_down computes mid = a·x, adapt_up adds b·mid. Rows with slot −1 keep their bits. The
// order of a sum depends on neither the other rows nor the kernel's number of rows.
#include "numbers.cuh"

struct AdaptArgs {
  const float *x;     // [rows, in]
  float *mid;         // [rows, modules·rank]; rows without an adapter are not written
  float *y;           // [rows, out]
  const void *a;      // [slots·modules·rank, in]
  const void *b;      // [slots·rank, out]
  const int *slots;   // [tokens] −1: no adapter
  const int *tokens;  // [rows] which token each row is; null: row by row
  int rows, in, out, rank, modules;
  int ends[3];  // for each module, the end of its columns in y
};

// adapt_slots reads the slots of R rows.
template <int R>
DEVICE void adapt_slots(const AdaptArgs &a, int row0, int slots[R]) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    int row = row0 + r;
    slots[r] = row < a.rows ? a.slots[a.tokens ? a.tokens[row] : row] : -1;
  }
}

// adapt_next returns a slot of the rows, −1 if none is left.
template <int R>
DEVICE int adapt_next(const int slots[R]) {
  int s = -1;
#pragma unroll
  for (int r = 0; r < R; r++) s = max(s, slots[r]);
  return s;
}

// adapt_four reads numbers i to i+3 of n; those behind are 0. whole: n is a multiple of 4.
template <int S>
DEVICE void adapt_four(const typename Stored<S>::type *p, int i, int n, bool whole, float v[4]) {
  if (whole && S == kF32) {
    float4 f = __ldg((const float4 *)(p + i));
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
  } else if (whole) {
    uint2 f = __ldg((const uint2 *)(p + i));
    v[0] = Stored<S>::read(uint16_t(f.x)), v[1] = Stored<S>::read(uint16_t(f.x >> 16));
    v[2] = Stored<S>::read(uint16_t(f.y)), v[3] = Stored<S>::read(uint16_t(f.y >> 16));
  } else {
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = i + k < n ? Stored<S>::read(__ldg(p + i + k)) : 0.0f;
  }
}

// adapt_down: a block for R rows and, in each warp, M numbers of mid. A row of a is read once for
// all rows of its slot.
template <int S, int R, int M>
DEVICE void adapt_down(const AdaptArgs &a) {
  int lane = threadIdx.x & 31, mids = a.modules * a.rank, row0 = blockIdx.x * R, slots[R];
  int first = (blockIdx.y * (blockDim.x >> 5) + (threadIdx.x >> 5)) * M;
  if (first >= mids) return;
  bool whole = a.in % 4 == 0;
  adapt_slots<R>(a, row0, slots);
  for (int s; (s = adapt_next<R>(slots)) >= 0;) {
    auto *w = (const typename Stored<S>::type *)a.a + (size_t(s) * mids + first) * a.in;
    float sums[R][M] = {};
    for (int i = 4 * lane; i < a.in; i += 128) {
      float u[M][4];
#pragma unroll
      for (int m = 0; m < M; m++)  // missing rows are those of the last one
        adapt_four<S>(w + size_t(min(m, mids - 1 - first)) * a.in, i, a.in, whole, u[m]);
#pragma unroll
      for (int r = 0; r < R; r++) {
        if (slots[r] != s) continue;
        float v[4];
        adapt_four<kF32>(a.x + size_t(row0 + r) * a.in, i, a.in, whole, v);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int k = 0; k < 4; k++) sums[r][m] = fmaf(u[m][k], v[k], sums[r][m]);
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (slots[r] != s) continue;
#pragma unroll
      for (int m = 0; m < M; m++) {
        float sum = warp_sum(sums[r][m]);
        if (lane == 0 && first + m < mids) a.mid[size_t(row0 + r) * mids + first + m] = sum;
      }
      slots[r] = -1;
    }
  }
}

// adapt_up: a block for R rows, a thread for each column of y.
template <int S, int R>
DEVICE void adapt_up(const AdaptArgs &a) {
  int c = blockIdx.y * blockDim.x + threadIdx.x, row0 = blockIdx.x * R, mids = a.modules * a.rank, slots[R];
  if (c >= a.out) return;
  int module = 0;
  while (module + 1 < a.modules && c >= a.ends[module]) module++;
  adapt_slots<R>(a, row0, slots);
  for (int s; (s = adapt_next<R>(slots)) >= 0;) {
    auto *w = (const typename Stored<S>::type *)a.b + size_t(s) * a.rank * a.out + c;
    const float *mid = a.mid + size_t(row0) * mids + module * a.rank;
    float sums[R] = {};
#pragma unroll 4
    for (int j = 0; j < a.rank; j++) {
      float u = Stored<S>::read(__ldg(w + size_t(j) * a.out));
#pragma unroll
      for (int r = 0; r < R; r++)
        if (slots[r] == s) sums[r] = fmaf(u, mid[size_t(r) * mids + j], sums[r]);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (slots[r] != s) continue;
      a.y[size_t(row0 + r) * a.out + c] += sums[r];
      slots[r] = -1;
    }
  }
}

KERNEL(adapt_down_f32, AdaptArgs, 256) { adapt_down<kF32, 1, 1>(a); }
KERNEL(adapt_down_f16, AdaptArgs, 256) { adapt_down<kF16, 1, 1>(a); }
KERNEL(adapt_down_bf16, AdaptArgs, 256) { adapt_down<kBF16, 1, 1>(a); }
KERNEL(adapt_down_many_f32, AdaptArgs, 256) { adapt_down<kF32, 4, 4>(a); }
KERNEL(adapt_down_many_f16, AdaptArgs, 256) { adapt_down<kF16, 4, 4>(a); }
KERNEL(adapt_down_many_bf16, AdaptArgs, 256) { adapt_down<kBF16, 4, 4>(a); }
KERNEL(adapt_up_f32, AdaptArgs, 256) { adapt_up<kF32, 1>(a); }
KERNEL(adapt_up_f16, AdaptArgs, 256) { adapt_up<kF16, 1>(a); }
KERNEL(adapt_up_bf16, AdaptArgs, 256) { adapt_up<kBF16, 1>(a); }
KERNEL(adapt_up_many_f32, AdaptArgs, 256) { adapt_up<kF32, 8>(a); }
KERNEL(adapt_up_many_f16, AdaptArgs, 256) { adapt_up<kF16, 8>(a); }
KERNEL(adapt_up_many_bf16, AdaptArgs, 256) { adapt_up<kBF16, 8>(a); }
