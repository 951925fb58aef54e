// Mixtures of experts: which experts a row goes to, rows sorted by expert so that the
// kernels of linear.cu multiply each with its own matrix, and the weighted sum.
#include "numbers.cuh"

struct RouteArgs {
  const float *logits;  // [rows, experts]
  const float *scale;   // [experts] or null: ones
  int *ids;             // [rows, top]
  float *weights;       // [rows, top]
  int rows, experts, top, pad;
};

constexpr int kMostExperts = 1024;  // a lane marks what it picked in 32 bits

// route: a warp for each row. NaN counts as −∞, so that all lanes agree and every pick is an
// expert: rows that pad a graph may hold anything.
KERNEL(route, RouteArgs, 256) {
  int lane = threadIdx.x & 31, row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (row >= a.rows) return;
  const float *logits = a.logits + size_t(row) * a.experts;
  unsigned taken = 0;
  float first = 0.0f, sum = 0.0f;
  for (int k = 0; k < a.top; k++) {
    float best = -INFINITY_F;
    int id = a.experts;  // none
    for (int e = lane; e < a.experts; e += 32)
      if (!(taken >> (e / 32) & 1)) {
        float v = logits[e] == logits[e] ? logits[e] : -INFINITY_F;
        if (id != a.experts && v <= best) continue;
        best = v;
        id = e;
      }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      float v = __shfl_xor_sync(kAllLanes, best, o);
      int other = __shfl_xor_sync(kAllLanes, id, o);
      if (other < a.experts && (id == a.experts || v > best || (v == best && other < id))) {
        best = v;
        id = other;
      }
    }
    if (id % 32 == lane) taken |= 1u << (id / 32);
    if (k == 0) first = best;
    float w = expf(best - first);
    sum += w;
    if (lane == 0) {
      a.ids[size_t(row) * a.top + k] = id;
      a.weights[size_t(row) * a.top + k] = w;
    }
  }
  __syncwarp();
  for (int k = lane; k < a.top; k += 32) {
    size_t at = size_t(row) * a.top + k;
    float w = a.weights[at] / sum;
    a.weights[at] = a.scale ? w * a.scale[a.ids[at]] : w;
  }
}

struct OrderArgs {
  const int *ids;  // [rows, top]
  int *order;      // [blocks·block] which row of X lies there, −1: none
  int *place;      // [rows, top] where a pick lies
  int *owner;      // [blocks] whose rows a block is, −1: nobody's
  int picks, top, experts, block, blocks, pad;
};

// experts_order: one block; shared memory for 2·experts + 32 ints. Rows of an expert begin at a
// multiple of block; where a row lies among them does not change what is computed of it.
KERNEL(experts_order, OrderArgs, 1024) {
  DYNAMIC_SHARED(memory);
  int *count = (int *)memory, *start = count + a.experts;
  for (int e = threadIdx.x; e < a.experts; e += blockDim.x) count[e] = 0;
  for (int i = threadIdx.x; i < a.blocks * a.block; i += blockDim.x) a.order[i] = -1;
  for (int i = threadIdx.x; i < a.blocks; i += blockDim.x) a.owner[i] = -1;
  __syncthreads();
  for (int i = threadIdx.x; i < a.picks; i += blockDim.x) atomicAdd(count + a.ids[i], 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    int before = 0, lane = threadIdx.x;
    for (int e0 = 0; e0 < a.experts; e0 += 32) {
      int e = e0 + lane, n = e < a.experts ? ceil_div(count[e], a.block) : 0, sum = n;
#pragma unroll
      for (int o = 1; o < 32; o <<= 1) {
        int v = __shfl_up_sync(kAllLanes, sum, o);
        if (lane >= o) sum += v;
      }
      if (e < a.experts) {
        start[e] = (before + sum - n) * a.block;
        for (int b = before + sum - n; b < before + sum; b++) a.owner[b] = e;
      }
      before += __shfl_sync(kAllLanes, sum, 31);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.picks; i += blockDim.x) {
    int at = atomicAdd(start + a.ids[i], 1);
    a.order[at] = i / a.top;
    a.place[i] = at;
  }
}

struct CombineArgs {
  const float *x;        // [_, cols] what the experts gave, by place
  const int *place;      // [rows, top]
  const float *weights;  // [rows, top]
  float *y;              // [rows, cols]
  int cols, top;
};

// experts_combine: a block for each row; sums run in the order of the picks.
KERNEL(experts_combine, CombineArgs, 256) {
  size_t row = blockIdx.x;
  const int *place = a.place + row * a.top;
  const float *weights = a.weights + row * a.top;
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) {
    float sum = 0.0f;
    for (int k = 0; k < a.top; k++) sum = fmaf(weights[k], a.x[size_t(place[k]) * a.cols + i], sum);
    a.y[row * a.cols + i] = sum;
  }
}
