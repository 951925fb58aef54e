// Angles of positions, and the split, normalization and rotation of fused projections.
#include "rows.cuh"

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
  int every, offset;  // of the temperature; every 0: none
  float beta;
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
  float *y = a.y + size_t(row) * 2 * n, scale = a.scale;
  if (a.every) scale *= 1.0f + a.beta * logf(float(1 + (long long)(angle_position(a, row, 0, 0) + (long long)a.offset) / a.every));
  for (int j = threadIdx.x; j < n; j += blockDim.x) {
    int part = j / a.half, i = j % a.half;
    float sine, cosine;
    sincosf(float(angle_position(a, row, i, part)) * a.frequencies[i], &sine, &cosine);
    int at = a.joined ? j : part * 2 * a.half + i;
    y[at] = cosine * scale;
    y[at + (a.joined ? n : a.half)] = sine * scale;
  }
}

struct RopeArgs {
  const void *qkv;      // [rows, (heads·(1+gated) + 2·kv_heads)·head_dim], shared: 1·kv_heads
  const float *angles;  // [rows, rotary]; not read if rotary is 0
  void *q;              // [rows, heads·head_dim]
  void *k, *v;          // [rows, kv_heads·head_dim]
  float *gate;          // [rows, heads·head_dim] or null: each query is followed by its gate
  const float *wq, *wk; // [head_dim], with kNormEach [heads·head_dim], [kv_heads·head_dim]; null: ones
  const float *query_angles;  // [rows, rotary]: of q; null: angles
  int heads, kv_heads, head_dim, rotary;
  int shared;  // 1: v is k before its norm and rotation
  int norm;    // of heads: a set of kNormQK and those below
  int parts;   // 1, or 2: the two halves of the rotary dimensions are rotated separately
  float eps, offset;
  int interleaved;  // 1: pair i is (2i, 2i+1), not (i, i+rotary/2); parts is 1
  int x_bf16;    // 1: qkv is bf16
  int q_stored;  // the Store of q: kF32, or the 16 bits in which queries are multiplied with keys stored as k
};

// The norm of heads: of q and k; of v; with one mean square for all heads of a row; with weights
// of its own for each head; with the mean subtracted first; of rotated heads.
enum { kNormQK = 1, kNormV = 2, kNormWhole = 4, kNormEach = 8, kNormPlain = 16, kNormAfter = 32 };

// Turn is a head of q or k and how it is normalized: (x - mean) · inverse · weight, before it is
// rotated or after that.
struct Turn {
  Numbers x;
  const float *w, *angles;
  float offset, mean, inverse;
  int after;
};

DEVICE float weight_of(const Turn &h, int i) { return h.inverse * (h.w ? h.offset + h.w[i] : 1.0f); }
DEVICE float before(const Turn &h, int i) { return h.after ? h.x[i] : (h.x[i] - h.mean) * weight_of(h, i); }
DEVICE float behind(const Turn &h, int i, float v) { return h.after ? v * weight_of(h, i) : v; }

// inverse_of returns the factor that gives a sum of n squares a mean of one.
DEVICE float inverse_of(float sum, int n, float eps) { return 1.0f / sqrtf(sum / float(n) + eps); }

// prepare sets mean and inverse of a head. A warp calls it.
DEVICE void prepare(const RopeArgs &a, Turn &h) {
  int d = a.head_dim, half = a.rotary / 2, lane = threadIdx.x & 31;
  if (a.norm & kNormPlain) {
    float total = 0.0f;
    for (int i = lane; i < d; i += 32) total += h.x[i];
    h.mean = warp_sum(total) / float(d);
  }
  float sum = 0.0f;
  for (int i = lane; i < d; i += 32) {
    float v = h.x[i] - h.mean;
    if (h.after && i < a.rotary) {  // what rotation makes of a pair's squares
      int pair = a.interleaved ? i / 2 : i % half;
      float cosine = h.angles[pair], sine = h.angles[half + pair];
      v *= sqrtf(cosine * cosine + sine * sine);
    }
    sum = fmaf(v, v, sum);
  }
  h.inverse = inverse_of(warp_sum(sum), d, a.eps);
}

// whole_inverse returns inverse_of for n numbers. All threads of the block call it.
DEVICE float whole_inverse(Numbers x, int n, float eps, float *scratch) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
  return inverse_of(block_sum(sum, scratch), n, eps);
}

// rotate_head calls out with every element of a head, normalized and rotated. A warp calls it.
template <class Out>
DEVICE void rotate_head(const RopeArgs &a, const Turn &h, Out out) {
  int wide = a.rotary / a.parts, half = wide / 2, lane = threadIdx.x & 31;
  for (int j = lane; j < a.rotary / 2; j += 32) {
    int angle = j / half * wide + j % half, i = a.interleaved ? 2 * j : angle, with = a.interleaved ? i + 1 : i + half;
    float p = before(h, i), q = before(h, with), cosine = h.angles[angle], sine = h.angles[angle + half];
    out(i, behind(h, i, p * cosine - q * sine));
    out(with, behind(h, with, q * cosine + p * sine));
  }
  for (int i = a.rotary + lane; i < a.head_dim; i += 32) out(i, behind(h, i, before(h, i)));
}

// rope_of: a block for each row, a warp for each head in turn. BF16: qkv is bf16. Q is the Store of q: in 16 bits it has those that attention
// makes of float32.
template <int S, bool BF16, int Q>
DEVICE void rope_of(const RopeArgs &a) {
  using T = typename Stored<S>::type;
  using Query = typename Stored<Q>::type;
  int warp = threadIdx.x >> 5, warps = blockDim.x >> 5, lane = threadIdx.x & 31, d = a.head_dim;
  int step = a.gate ? 2 : 1, each = a.norm & kNormEach ? d : 0;
  size_t row = blockIdx.x, in = size_t(step * a.heads + (2 - a.shared) * a.kv_heads) * d;
  Numbers x = Numbers{a.qkv, BF16} + row * in, keys = x + size_t(step) * a.heads * d;
  const float *angles = a.angles + row * a.rotary;
  const float *of_queries = a.query_angles ? a.query_angles + row * a.rotary : angles;
  float of_q = 1.0f, of_k = 1.0f;
  if (a.norm & kNormWhole) {
    __shared__ float scratch[32];
    of_q = whole_inverse(x, a.heads * d, a.eps, scratch);
    of_k = whole_inverse(keys, a.kv_heads * d, a.eps, scratch);
  }
  for (int h = warp; h < a.heads + 2 * a.kv_heads; h += warps) {
    int kv = h < a.heads ? 0 : (h - a.heads) % a.kv_heads, at_head = h < a.heads ? h : kv;
    size_t at = (row * a.kv_heads + kv) * d;
    if (h < a.heads + a.kv_heads) {
      bool query = h < a.heads;
      Turn head = {query ? x + size_t(step) * h * d : keys + size_t(kv) * d, query ? a.wq : a.wk, query ? of_queries : angles, a.offset, 0.0f, query ? of_q : of_k, a.norm & kNormAfter};
      if (head.w) head.w += at_head * each;
      if ((a.norm & kNormQK) && !(a.norm & kNormWhole)) prepare(a, head);
      Query *q = (Query *)a.q + (row * a.heads + at_head) * d;
      T *k = (T *)a.k + at;
      rotate_head(a, head, [&](int i, float v) {
        if (query) q[i] = Stored<Q>::write(v);
        else k[i] = Stored<S>::write(v);
      });
      if (query && a.gate)
        for (int i = lane; i < d; i += 32) a.gate[(row * a.heads + h) * d + i] = head.x[d + i];
      continue;
    }
    Numbers value = keys + size_t(a.shared ? kv : a.kv_heads + kv) * d;
    float sum = 0.0f;
    for (int i = lane; i < d && (a.norm & kNormV); i += 32) sum = fmaf(value[i], value[i], sum);
    float inverse = a.norm & kNormV ? inverse_of(warp_sum(sum), d, a.eps) : 1.0f;
    T *v = (T *)a.v + at;
    for (int i = lane; i < d; i += 32) v[i] = Stored<S>::write(value[i] * inverse);
  }
}

// rope chooses by what the arguments say of qkv and q; keys stored as S are multiplied with queries in bf16 or fp16.
template <int S>
DEVICE void rope(const RopeArgs &a) {
  constexpr int kQuery = S == kF32 || S == kBF16 ? S : kF16;
  if (a.q_stored == kF32) {
    if (a.x_bf16)
      rope_of<S, true, kF32>(a);
    else
      rope_of<S, false, kF32>(a);
  } else {
    if (a.x_bf16)
      rope_of<S, true, kQuery>(a);
    else
      rope_of<S, false, kQuery>(a);
  }
}

KERNEL(rope_bf16, RopeArgs, 256) { rope<kBF16>(a); }
KERNEL(rope_f16, RopeArgs, 256) { rope<kF16>(a); }
KERNEL(rope_e4m3, RopeArgs, 256) { rope<kE4M3>(a); }
KERNEL(rope_e5m2, RopeArgs, 256) { rope<kE5M2>(a); }
KERNEL(rope_f32, RopeArgs, 256) { rope<kF32>(a); }

struct LatentRopeArgs {
  const float *q;       // [rows, heads·(nope+rotary)]
  const float *kv;      // [rows, rank+rotary]
  const float *angles;  // [rows, rotary]
  const float *w;       // [rank]: of the norm of latents
  float *query;         // [rows, heads·(rank+rotary)]: the last rotary columns of a head are written
  void *k, *v;          // [rows, rotary], [rows, rank]
  int heads, nope, rank, rotary;
  int interleaved;  // 1: pair i is (2i, 2i+1), not (i, i+rotary/2)
  float eps;
};

// rotate_pairs calls out with the rotated elements of x. A warp calls it.
template <class Out>
DEVICE void rotate_pairs(const LatentRopeArgs &a, const float *x, const float *angles, Out out) {
  int half = a.rotary / 2, first = a.interleaved ? 2 : 1, second = a.interleaved ? 1 : half;
  for (int i = threadIdx.x & 31; i < half; i += 32) {
    int at = first * i, with = at + second;
    float p = x[at], q = x[with], cosine = angles[i], sine = angles[half + i];
    out(at, p * cosine - q * sine);
    out(with, q * cosine + p * sine);
  }
}

// latent_rope: a block for each row. All its warps norm the latent; then each takes a head in turn,
// the last of which is the key's.
template <int S>
DEVICE void latent_rope(const LatentRopeArgs &a) {
  using T = typename Stored<S>::type;
  __shared__ float scratch[32];
  int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  size_t row = blockIdx.x;
  const float *kv = a.kv + row * (a.rank + a.rotary), *angles = a.angles + row * a.rotary;
  float inverse = whole_inverse({kv, false}, a.rank, a.eps, scratch);
  T *v = (T *)a.v + row * a.rank, *k = (T *)a.k + row * a.rotary;
  for (int i = threadIdx.x; i < a.rank; i += blockDim.x) v[i] = Stored<S>::write(kv[i] * inverse * a.w[i]);
  for (int h = warp; h < a.heads; h += warps) {
    const float *x = a.q + (row * a.heads + h) * (a.nope + a.rotary) + a.nope;
    float *y = a.query + (row * a.heads + h) * (a.rank + a.rotary) + a.rank;
    rotate_pairs(a, x, angles, [&](int i, float n) { y[i] = n; });
  }
  if (warp == a.heads % warps) rotate_pairs(a, kv + a.rank, angles, [&](int i, float n) { k[i] = Stored<S>::write(n); });
}

KERNEL(latent_rope_bf16, LatentRopeArgs, 256) { latent_rope<kBF16>(a); }
KERNEL(latent_rope_f16, LatentRopeArgs, 256) { latent_rope<kF16>(a); }
KERNEL(latent_rope_e4m3, LatentRopeArgs, 256) { latent_rope<kE4M3>(a); }
KERNEL(latent_rope_e5m2, LatentRopeArgs, 256) { latent_rope<kE5M2>(a); }
KERNEL(latent_rope_f32, LatentRopeArgs, 256) { latent_rope<kF32>(a); }
