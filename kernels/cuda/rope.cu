// Angles of positions, and the split, normalization and rotation of fused projections.
#include "numbers.cuh"

struct AnglesArgs {
  const int *positions;        // [_]
  const int *accepted_row;     // [rows] or null: row s is at positions[accepted_row[s]] + by
  const int *places;           // [rows, 3] or null: a token's positions by axis
  const int *across, *down;    // [rows] or null: two positions of a row
  const float *frequencies;    // [half]
  float *y;                    // [rows, 2·half], with across and down [rows, 4·half]
  int half, by;
  int sections[3];             // with places: frequency i belongs to axis i%3 if i < 3·sections[axis]
  float scale;
  int joined;  // with across: both cosines come before both sines
  int pad;
};

DEVICE int angle_position(const AnglesArgs &a, int row, int i, int part) {
  if (a.across) return part ? a.down[row] : a.across[row];
  int ahead = a.accepted_row ? a.by : 0, token = a.accepted_row ? max(a.accepted_row[row], 0) : row;
  if (a.places) {
    int axis = i % 3;
    if (i >= 3 * a.sections[axis]) axis = 0;
    return max(0, a.places[3 * token + axis] + ahead);
  }
  return max(0, a.positions[token] + ahead);
}

// angles: a block for each row. The product of position and frequency is rounded to float32
// before its cosine and sine are taken.
KERNEL(angles, AnglesArgs, 256) {
  int row = blockIdx.x, parts = a.across ? 2 : 1, n = parts * a.half;
  float *y = a.y + size_t(row) * 2 * n;
  for (int j = threadIdx.x; j < n; j += blockDim.x) {
    int part = j / a.half, i = j % a.half;
    float sine, cosine;
    sincosf(float(angle_position(a, row, i, part)) * a.frequencies[i], &sine, &cosine);
    int at = a.joined ? j : part * 2 * a.half + i;
    y[at] = cosine * a.scale;
    y[at + (a.joined ? n : a.half)] = sine * a.scale;
  }
}

struct RopeArgs {
  const float *qkv;     // [rows, (heads·(1+gated) + 2·kv_heads)·head_dim], shared: 1·kv_heads
  const float *angles;  // [rows, rotary]
  float *q;             // [rows, heads·head_dim]
  void *k, *v;          // [rows, kv_heads·head_dim]
  float *gate;          // [rows, heads·head_dim] or null: each query is followed by its gate
  const float *wq, *wk; // [head_dim] or null: heads are not normalized
  int heads, kv_heads, head_dim, rotary;
  int shared;  // 1: v is k before its norm and rotation
  int norm_v;  // 1: v is normalized too
  int parts;   // 1, or 2: the two halves of the rotary dimensions are rotated separately
  float eps, offset;
  int pad;
};

// head_inverse returns the factor that gives a head a mean square of one.
DEVICE float head_inverse(const float *x, int d, float eps) {
  float sum = 0.0f;
  for (int i = threadIdx.x & 31; i < d; i += 32) sum = fmaf(x[i], x[i], sum);
  return 1.0f / sqrtf(warp_sum(sum) / float(d) + eps);
}

// rotate_head normalizes a head by w, unless it is null, and rotates it. A warp calls it; out
// is called with every element.
template <class Out>
DEVICE void rotate_head(const RopeArgs &a, const float *x, const float *w, const float *angles, Out out) {
  float inverse = w ? head_inverse(x, a.head_dim, a.eps) : 1.0f;
  auto at = [&](int i) { return w ? x[i] * inverse * (a.offset + w[i]) : x[i]; };
  int wide = a.rotary / a.parts, half = wide / 2;
  for (int j = threadIdx.x & 31; j < a.rotary / 2; j += 32) {
    int part = j / half, i = part * wide + j % half;
    float p = at(i), q = at(i + half), cosine = angles[i], sine = angles[i + half];
    out(i, p * cosine - q * sine);
    out(i + half, q * cosine + p * sine);
  }
  for (int i = a.rotary + (threadIdx.x & 31); i < a.head_dim; i += 32) out(i, at(i));
}

// rope: a block for each row, a warp for each head in turn.
template <int S>
DEVICE void rope(const RopeArgs &a) {
  using T = typename Stored<S>::type;
  int warp = threadIdx.x >> 5, warps = blockDim.x >> 5, lane = threadIdx.x & 31, d = a.head_dim;
  int step = a.gate ? 2 : 1;
  size_t row = blockIdx.x, in = size_t(step * a.heads + (2 - a.shared) * a.kv_heads) * d;
  const float *x = a.qkv + row * in, *angles = a.angles + row * a.rotary;
  const float *keys = x + size_t(step) * a.heads * d;
  for (int h = warp; h < a.heads + 2 * a.kv_heads; h += warps) {
    if (h < a.heads) {
      const float *head = x + size_t(step) * h * d;
      float *q = a.q + (row * a.heads + h) * d;
      rotate_head(a, head, a.wq, angles, [&](int i, float v) { q[i] = v; });
      if (a.gate)
        for (int i = lane; i < d; i += 32) a.gate[(row * a.heads + h) * d + i] = head[d + i];
      continue;
    }
    int kv = (h - a.heads) % a.kv_heads;
    size_t at = (row * a.kv_heads + kv) * d;
    if (h < a.heads + a.kv_heads) {
      T *k = (T *)a.k + at;
      rotate_head(a, keys + size_t(kv) * d, a.wk, angles, [&](int i, float v) { k[i] = Stored<S>::write(v); });
      continue;
    }
    const float *value = keys + size_t(a.shared ? kv : a.kv_heads + kv) * d;
    float inverse = a.norm_v ? head_inverse(value, d, a.eps) : 1.0f;
    T *v = (T *)a.v + at;
    for (int i = lane; i < d; i += 32) v[i] = Stored<S>::write(value[i] * inverse);
  }
}

KERNEL(rope_bf16, RopeArgs, 256) { rope<kBF16>(a); }
KERNEL(rope_f16, RopeArgs, 256) { rope<kF16>(a); }
KERNEL(rope_e4m3, RopeArgs, 256) { rope<kE4M3>(a); }
KERNEL(rope_e5m2, RopeArgs, 256) { rope<kE5M2>(a); }
KERNEL(rope_f32, RopeArgs, 256) { rope<kF32>(a); }
