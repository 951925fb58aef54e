// Mixtures of experts: the experts of each row (route), rows sorted by expert, products with
// each expert's matrix (here in float32; other formats use linear.cu), and the weighted sum.
#include "rows.cuh"

struct RouteArgs {
  const float *logits;      // [rows, experts]
  const float *scale;       // [experts] or null: ones
  const float *correction;  // [experts] or null: zeros
  int *ids;                 // [rows, top]
  float *weights;           // [rows, top]
  int rows, experts, top;   // at most 1024 experts: a lane marks its picks in 32 bits
  int score, normalize;     // backend.Score
  int groups, top_groups;   // groups: 0, or at most 32, one for each lane
  int group_top;            // experts of a group that are added: 1 or 2
  float factor;
};

constexpr int kSelectedSoftmax = 0, kSoftmax = 1, kLogit = 3;

// RouteRow is a row of logits and what its scores have in common: exp(logit − largest) / sum,
// sigmoids, or the logits.
struct RouteRow {
  const float *logits;
  float largest, sum;
};

// route_logit returns a logit; a NaN counts as −∞, so that all lanes agree and every pick is an
// expert: padding rows of a graph may hold anything.
DEVICE float route_logit(const RouteRow &r, int e) { return r.logits[e] == r.logits[e] ? r.logits[e] : -INFINITY_F; }

DEVICE float route_score(const RouteArgs &a, const RouteRow &r, int e) {
  float v = route_logit(r, e);
  if (a.score == kLogit) return v;
  if (a.score == kSelectedSoftmax) return expf(v - r.largest);
  return a.score == kSoftmax ? expf(v - r.largest) / r.sum : 1.0f / (1.0f + expf(-v));
}

// route_key returns what expert e is compared by.
DEVICE float route_key(const RouteArgs &a, const RouteRow &r, int e) {
  if (!a.correction && !a.groups) return route_logit(r, e);
  float v = route_score(a, r, e) + (a.correction ? a.correction[e] : 0.0f);
  return v == v ? v : -INFINITY_F;
}

// route_best sets key and id of every lane to those of the best lane, the lowest id of equals. An
// id of none loses to every other.
DEVICE void route_best(float *key, int *id, int none) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    float v = __shfl_xor_sync(kAllLanes, *key, o);
    int other = __shfl_xor_sync(kAllLanes, *id, o);
    if (other < none && (*id == none || v > *key || (v == *key && other < *id))) {
      *key = v;
      *id = other;
    }
  }
}

// route_groups returns a bit for each of the best groups; a lane adds the best keys of a group.
DEVICE unsigned route_groups(const RouteArgs &a, const RouteRow &r, int lane) {
  int size = a.experts / a.groups;
  float first = -INFINITY_F, second = -INFINITY_F;
  for (int i = 0; i < size && lane < a.groups; i++) {
    float v = route_key(a, r, lane * size + i);
    second = fmaxf(second, fminf(first, v));
    first = fmaxf(first, v);
  }
  unsigned chosen = 0;
  for (int k = 0; k < a.top_groups; k++) {
    float key = a.group_top == 1 ? first : first + second;
    int id = lane < a.groups && !(chosen >> lane & 1) ? lane : 32;
    route_best(&key, &id, 32);
    chosen |= 1u << id;
  }
  return chosen;
}

// route_row picks the experts of a row. A warp calls it.
DEVICE void route_row(const RouteArgs &a, int row) {
  int lane = threadIdx.x & 31;
  RouteRow r = {a.logits + size_t(row) * a.experts, 0.0f, 0.0f};
  if (a.score == kSoftmax) {
    float largest = -INFINITY_F, sum = 0.0f;
    for (int e = lane; e < a.experts; e += 32) largest = fmaxf(largest, route_logit(r, e));
    r.largest = warp_max(largest);
    for (int e = lane; e < a.experts; e += 32) sum += expf(route_logit(r, e) - r.largest);
    r.sum = warp_sum(sum);
  }
  unsigned taken = 0, chosen = a.groups ? route_groups(a, r, lane) : 1u;
  int size = a.groups ? a.experts / a.groups : a.experts;
  float sum = 0.0f;
  for (int k = 0; k < a.top; k++) {
    float best = -INFINITY_F;
    int id = a.experts;  // none
    for (int e = lane; e < a.experts; e += 32)
      if (!(taken >> (e / 32) & 1) && chosen >> (e / size) & 1) {
        float v = route_key(a, r, e);
        if (id != a.experts && v <= best) continue;
        best = v;
        id = e;
      }
    route_best(&best, &id, a.experts);
    if (id % 32 == lane) taken |= 1u << (id / 32);
    if (k == 0 && a.score == kSelectedSoftmax) r.largest = best;
    float w = route_score(a, r, id);
    sum += w;
    if (lane == 0) {
      a.ids[size_t(row) * a.top + k] = id;
      a.weights[size_t(row) * a.top + k] = w;
    }
  }
  __syncwarp();
  sum = a.score == kSelectedSoftmax || a.normalize ? fmaxf(sum, 1e-20f) : 1.0f;
  for (int k = lane; k < a.top; k += 32) {
    size_t at = size_t(row) * a.top + k;
    float w = a.weights[at] / sum * a.factor;
    a.weights[at] = a.scale ? w * a.scale[a.ids[at]] : w;
  }
}

// route: a warp for each row.
KERNEL(route, RouteArgs, 256) {
  int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (row < a.rows) route_row(a, row);
}

struct OrderArgs {
  const int *ids;  // [rows, top]
  int *order;      // [blocks·block] the row of X in this place, −1: none
  int *place;      // [rows, top] the place of a pick
  int *owner;      // [blocks] the expert of a block, −1: none
  int picks, top, experts, block, blocks, pad;
};

// order_picks sorts picks by expert. One block calls it; memory holds 2·experts ints. The rows of an expert
// begin at a multiple of block; their order does not change results.
DEVICE void order_picks(const OrderArgs &a, unsigned char *memory) {
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

// experts_order: one block; shared memory for 2·experts ints.
KERNEL(experts_order, OrderArgs, 1024) {
  DYNAMIC_SHARED(memory);
  order_picks(a, memory);
}

struct RouteOrderArgs {
  RouteArgs route;
  OrderArgs order;  // its ids are those of route
};

// route_order is route and then experts_order, for few rows: one block, a warp for each row in turn.
KERNEL(route_order, RouteOrderArgs, 1024) {
  DYNAMIC_SHARED(memory);
  for (int row = threadIdx.x >> 5; row < a.route.rows; row += blockDim.x >> 5) route_row(a.route, row);
  __syncthreads();  // the picks of all rows are there
  order_picks(a.order, memory);
}

struct ExpertsArgs {
  const float *x;      // [_, in]
  const int *order;    // [rows of all blocks] the row of x in this place, −1: none
  const int *owner;    // [blocks] the expert of a block, −1: none
  const float *w;      // [experts, out, in], row by row
  const float *bias;   // [experts, out] or null
  float *y;            // [rows of all blocks, out]; empty places are not written
  int in, out;
  int placed, pad;     // placed: rows of x are in the order of y, and order only marks the empty ones
};

// experts_row returns the row of x for a row of y, null if there is none.
DEVICE const float *experts_row(const ExpertsArgs &a, size_t row) {
  int from = __ldg(a.order + row);
  return from < 0 ? nullptr : a.x + (a.placed ? row : size_t(from)) * a.in;
}

// experts_f32_4: a warp computes two features of up to four rows, the first of a block. grid:
// blocks of rows, features/16.
KERNEL_OF(experts_f32_4, ExpertsArgs, 256, 2) {
  constexpr int kRows = 4, kFeatures = 2;
  int expert = a.owner[blockIdx.x], lane = threadIdx.x & 31;
  int feature0 = (blockIdx.y * (blockDim.x >> 5) + (threadIdx.x >> 5)) * kFeatures;
  if (expert < 0 || feature0 >= a.out) return;
  size_t row0 = size_t(blockIdx.x) * kRows;
  const float *x[kRows], *w[kFeatures];
  int rows = 0;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    const float *row = experts_row(a, row0 + r);
    rows += row != nullptr;
    x[r] = row || r == 0 ? row : x[0];
  }
#pragma unroll
  for (int f = 0; f < kFeatures; f++) w[f] = a.w + (size_t(expert) * a.out + min(feature0 + f, a.out - 1)) * a.in;
  float sum[kFeatures][kRows] = {};
  int whole = a.in % 4 == 0 ? a.in / 4 : 0;  // rows begin at multiples of 16 bytes
#pragma unroll 3
  for (int k = lane; k < whole; k += 32) {
    float4 v[kFeatures];
#pragma unroll
    for (int f = 0; f < kFeatures; f++) v[f] = __ldg((const float4 *)w[f] + k);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float4 u = __ldg((const float4 *)x[r] + k);
#pragma unroll
      for (int f = 0; f < kFeatures; f++) sum[f][r] = fmaf(v[f].w, u.w, fmaf(v[f].z, u.z, fmaf(v[f].y, u.y, fmaf(v[f].x, u.x, sum[f][r]))));
    }
  }
  for (int k = 4 * whole + lane; k < a.in; k += 32)
#pragma unroll
    for (int r = 0; r < kRows; r++)
#pragma unroll
      for (int f = 0; f < kFeatures; f++) sum[f][r] = fmaf(__ldg(w[f] + k), __ldg(x[r] + k), sum[f][r]);
#pragma unroll
  for (int f = 0; f < kFeatures; f++)
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float v = warp_sum(sum[f][r]);
      int feature = feature0 + f;
      if (lane == 0 && r < rows && feature < a.out) a.y[(row0 + r) * a.out + feature] = v + (a.bias ? a.bias[size_t(expert) * a.out + feature] : 0.0f);
    }
}

// four returns elements k to k+3 of a row of n, with zeros past the end; a null row is zeros.
DEVICE float4 four(const float *row, int k, int n) {
  if (row == nullptr) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (n % 4 == 0) return k < n ? __ldg((const float4 *)(row + k)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = k + i < n ? __ldg(row + k + i) : 0.0f;
  return make_float4(v[0], v[1], v[2], v[3]);
}

// experts_f32_64: a block computes 128 features of 64 rows; a thread computes eight by eight,
// in contiguous fours. Shared memory holds 16 inputs, transposed, while the next 16 are loaded:
// for each input its 64 rows of X, then its 128 features. The position of the fours depends on
// the input, so that no bank is accessed twice at once. grid: blocks of rows, features/128.
KERNEL(experts_f32_64, ExpertsArgs, 128) {
  constexpr int kRows = 64, kFeatures = 128, kStep = 16, kAcross = kRows + kFeatures, kLoads = kAcross * kStep / 4 / 128;
  __shared__ float4 scratch[2][kStep][kAcross / 4];
  int expert = a.owner[blockIdx.x];
  if (expert < 0) return;
  size_t row0 = size_t(blockIdx.x) * kRows;
  int feature0 = blockIdx.y * kFeatures, in4 = threadIdx.x % 4, column = threadIdx.x / 4;  // what the thread loads first
  const float *from[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; i++) {
    int at = column + 32 * i, feature = feature0 + at - kRows;
    from[i] = at < kRows ? experts_row(a, row0 + at) : feature < a.out ? a.w + (size_t(expert) * a.out + feature) * a.in : nullptr;
  }
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int across = lane % 8 + 8 * (warp % 2), down = lane / 8 + 4 * (warp / 2);  // in fours of features, of rows
  float sum[8][8] = {};
  float4 next[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; i++) next[i] = four(from[i], 4 * in4, a.in);
  for (int k0 = 0, stage = 0; k0 < a.in; k0 += kStep, stage ^= 1) {
    float *to = (float *)scratch[stage][4 * in4];
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
      int at = (column + 32 * i) ^ (8 * in4);
      to[at] = next[i].x;
      to[kAcross + at] = next[i].y;
      to[2 * kAcross + at] = next[i].z;
      to[3 * kAcross + at] = next[i].w;
    }
    __syncthreads();  // what is written next is the other stage, which no warp reads any more
    if (k0 + kStep < a.in) {
#pragma unroll
      for (int i = 0; i < kLoads; i++) next[i] = four(from[i], k0 + kStep + 4 * in4, a.in);
    }
#pragma unroll
    for (int k = 0; k < kStep; k++) {
      const float4 *line = scratch[stage][k];
      int turn = 2 * (k / 4);
      float x[8], w[8];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float4 u = line[8 * h + (down ^ turn)], v = line[kRows / 4 + 16 * h + (across ^ turn)];
        x[4 * h] = u.x, x[4 * h + 1] = u.y, x[4 * h + 2] = u.z, x[4 * h + 3] = u.w;
        w[4 * h] = v.x, w[4 * h + 1] = v.y, w[4 * h + 2] = v.z, w[4 * h + 3] = v.w;
      }
#pragma unroll
      for (int r = 0; r < 8; r++)
#pragma unroll
        for (int f = 0; f < 8; f++) sum[r][f] = fmaf(x[r], w[f], sum[r][f]);
    }
  }
  const float *bias = a.bias ? a.bias + size_t(expert) * a.out : nullptr;
#pragma unroll
  for (int r = 0; r < 8; r++) {
    size_t row = row0 + 32 * (r / 4) + 4 * down + r % 4;
    if (__ldg(a.order + row) < 0) continue;
#pragma unroll
    for (int f = 0; f < 8; f++) {
      int feature = feature0 + 64 * (f / 4) + 4 * across + f % 4;
      if (feature < a.out) a.y[row * a.out + feature] = sum[r][f] + (bias ? bias[feature] : 0.0f);
    }
  }
}

struct CombineArgs {
  const void *x;         // [_, cols] outputs of the experts, by place
  const int *place;      // [rows, top]
  const float *weights;  // [rows, top]
  void *y;               // [rows, cols]
  int cols, top;
  int x_bf16, y_bf16;    // 1: bf16
};

// combine: sums of N columns run in the order of the picks. BF16: x is bf16.
template <bool BF16, int N>
DEVICE void combine(const CombineArgs &a) {
  size_t row = blockIdx.x;
  const int *place = a.place + row * a.top;
  const float *weights = a.weights + row * a.top;
  Numbers x = {a.x, BF16};
  for (int i = N * threadIdx.x; i < a.cols; i += N * blockDim.x) {
    float sum[N] = {};
    for (int k = 0; k < a.top; k++) {
      size_t at = size_t(place[k]) * a.cols + i;
      float w = weights[k];
      if constexpr (N == 4) {
        float4 v = x.four(at);
        sum[0] = fmaf(w, v.x, sum[0]);
        sum[1] = fmaf(w, v.y, sum[1]);
        sum[2] = fmaf(w, v.z, sum[2]);
        sum[3] = fmaf(w, v.w, sum[3]);
      } else {
        sum[0] = fmaf(w, x[at], sum[0]);
      }
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
      if (a.y_bf16)
        ((uint16_t *)a.y)[row * a.cols + i + n] = to_bf16(sum[n]);
      else
        ((float *)a.y)[row * a.cols + i + n] = sum[n];
    }
  }
}

// experts_combine: a block for each row.
KERNEL(experts_combine, CombineArgs, 256) {
  if (a.cols % 4 == 0 && a.x_bf16)
    combine<true, 4>(a);
  else if (a.cols % 4 == 0)
    combine<false, 4>(a);
  else if (a.x_bf16)
    combine<true, 1>(a);
  else
    combine<false, 1>(a);
}
