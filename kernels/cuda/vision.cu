// Ops of vision towers: an item's patches, learned positions resampled to its size, pooling of
// squares, and encoded rows, which are kept and replace tokens.
#include "numbers.cuh"

struct PatchesArgs {
  const float *item;                   // [256] colours of bytes; behind them the bytes, [T, cols]
  const int *item_across, *item_down;  // [T]
  float *pixels;                       // [T, cols]
  int *across, *down;                  // [T]
  float scale, shift;
  int cols, pad;
};

// patches: a block for each patch.
KERNEL(patches, PatchesArgs, 256) {
  int t = blockIdx.x;
  if (threadIdx.x == 0) {
    a.across[t] = a.item_across[t];
    a.down[t] = a.item_down[t];
  }
  const unsigned char *bytes = (const unsigned char *)(a.item + 256) + size_t(t) * a.cols;
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) a.pixels[size_t(t) * a.cols + i] = a.item[bytes[i]] * a.scale + a.shift;
}

// most_place returns the largest of places [n] to all threads of the block, which has whole
// warps.
DEVICE int most_place(const int *places, int n, float *scratch) {
  int most = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = max(most, places[i]);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) most = max(most, __shfl_xor_sync(kAllLanes, most, o));
  int *all = (int *)scratch, warps = blockDim.x >> 5;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) all[threadIdx.x >> 5] = most;
  __syncthreads();
  for (int w = 0; w < warps; w++) most = max(most, all[w]);
  return most;
}

struct PoolArgs {
  const float *x;            // [T, cols]
  const int *across, *down;  // [T]
  float *y;                  // [rows, cols]
  int tokens, cols, size;    // size² ≤ kSquare
  float scale;
};

constexpr int kSquare = 64;

// pool: a block for each row of y, whole warps.
KERNEL(pool, PoolArgs, 256) {
  __shared__ int at[kSquare];
  __shared__ float scratch[32];
  int wide = (most_place(a.across, a.tokens, scratch) + 1) / a.size, n = a.size * a.size;
  int across = blockIdx.x % wide, down = blockIdx.x / wide;
  for (int i = threadIdx.x; i < n; i += blockDim.x) at[i] = -1;
  __syncthreads();
  for (int t = threadIdx.x; t < a.tokens; t += blockDim.x)
    if (a.across[t] / a.size == across && a.down[t] / a.size == down) at[a.down[t] % a.size * a.size + a.across[t] % a.size] = t;
  __syncthreads();
  for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
      if (at[i] >= 0) sum += a.x[size_t(at[i]) * a.cols + c];
    a.y[size_t(blockIdx.x) * a.cols + c] = sum / float(n) * a.scale;
  }
}

struct StandardizeArgs {
  float *x;                   // [rows, cols], in place
  const float *mean, *scale;  // [cols]
  int cols, pad;
};

// standardize: a block for each row.
KERNEL(standardize, StandardizeArgs, 256) {
  float *x = a.x + size_t(blockIdx.x) * a.cols;
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) x[i] = (x[i] - a.mean[i]) * a.scale[i];
}

struct ResampleArgs {
  float *x;                  // [T, cols], updated
  const void *table;         // [side·side, cols]
  const int *across, *down;  // [T]
  int tokens, cols, side, pad;
};

// Between is a position between two rows of a table: the rows and the weight of the second.
struct Between {
  int lo, hi;
  float share;
};
DEVICE Between between(int at, int most, int side) {
  if (most == 0) return {0, min(1, side - 1), 0.0f};
  int n = at * (side - 1), lo = n / most;
  return {lo, min(lo + 1, side - 1), float(n % most) / float(most)};
}

// resample: a block for each token, whole warps.
template <int S>
DEVICE void resample(const ResampleArgs &a) {
  __shared__ float scratch[32];
  int wide = most_place(a.across, a.tokens, scratch), high = most_place(a.down, a.tokens, scratch), t = blockIdx.x;
  Between x = between(a.across[t], wide, a.side), y = between(a.down[t], high, a.side);
  auto at = [&](int row, int col, int i) {
    return Stored<S>::read(__ldg((const typename Stored<S>::type *)a.table + (size_t(row) * a.side + col) * a.cols + i));
  };
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) {
    float upper = at(y.lo, x.lo, i) * (1.0f - x.share) + at(y.lo, x.hi, i) * x.share;
    float lower = at(y.hi, x.lo, i) * (1.0f - x.share) + at(y.hi, x.hi, i) * x.share;
    a.x[size_t(t) * a.cols + i] += upper * (1.0f - y.share) + lower * y.share;
  }
}

KERNEL(resample_f32, ResampleArgs, 256) { resample<kF32>(a); }
KERNEL(resample_f16, ResampleArgs, 256) { resample<kF16>(a); }
KERNEL(resample_bf16, ResampleArgs, 256) { resample<kBF16>(a); }

struct MergeArgs {
  float *x;              // [T, cols]
  const float *encoded;  // [_, cols]
  const int *rows;       // [T] the row of encoded that replaces this row, −1: none
  int cols, pad;
};

// merge: a block for each row of x.
KERNEL(merge, MergeArgs, 256) {
  int from = a.rows[blockIdx.x];
  if (from < 0) return;
  const float *e = a.encoded + size_t(from) * a.cols;
  float *x = a.x + size_t(blockIdx.x) * a.cols;
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) x[i] = e[i];
}

struct StoreEncodedArgs {
  const float *x;  // [rows, cols]
  float *encoded;  // [_, cols]
  const int *at;   // [1] the row of encoded for the first row of x
  int cols, pad;
};

// store_encoded: a block for each row of x.
KERNEL(store_encoded, StoreEncodedArgs, 256) {
  const float *x = a.x + size_t(blockIdx.x) * a.cols;
  float *e = a.encoded + (size_t(a.at[0]) + blockIdx.x) * a.cols;
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) e[i] = x[i];
}
