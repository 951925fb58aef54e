// Logits to tokens, a block for each row, in the order that kernels/ref's Sample names:
// masks, raw logprobs, edits, penalties, temperature, min-p, top-k, top-p, the draw.
//
// Nothing is sorted: the k-th largest logit, and the one at which the nucleus ends, are
// found three bits of their ordered form at a time by passes that sum over those above
// seven pivots. Weights are summed as integers of 2^−45, so that no sum depends on the
// order of threads.
#include "pages.cuh"

// SampleRow is engine/backend's, byte for byte.
struct SampleRow {
  unsigned long long seed;
  int position, seq;
  unsigned flags;
  int num_top, num_bias, top_k;
  float temperature, top_p, min_p, repetition, frequency, presence;
  int prompt, history, target, pad[3];
};

enum SampleFlags { kUseGrammar = 1, kUseAllowed = 2, kWantLogprob = 4, kUseTarget = 8 };

struct BiasEntry {
  int token;
  float value;
};

struct SampleArgs {
  float *logits;             // [rows, vocab]; edited
  const SampleRow *rows;     // [rows]
  const unsigned *grammar;   // [rows, words]
  const unsigned *allowed;   // [rows, words]
  const BiasEntry *bias;     // [rows, bias_width]
  float *raw;                // [rows, vocab]: room for rows that want logprobs of logits that are edited
  int *sampled, *status, *rank;  // [rows]
  float *logprob;                // [rows]
  int *top_ids;                  // [rows, top_width]
  float *top_probs;
  Pages pages;     // the class with the token plane
  long long plane;  // where it begins in a page
  int vocab, words, bias_width, top_width;
};

typedef unsigned long long Sum;
constexpr float kOne = 35184372088832.0f;  // 2^45: a weight of 1
constexpr int kCounters = 12288;           // tokens whose history is counted at a time, in shared memory

DEVICE Sum fixed(float w) { return Sum(double(w) * double(kOne)); }

// ordered has the order of the floats, NaN aside.
DEVICE unsigned ordered(float v) {
  unsigned u = __float_as_uint(v);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
DEVICE float unordered(unsigned u) { return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u); }

DEVICE Sum warp_total(Sum v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(kAllLanes, v, o);
  return v;
}

// block_totals sums N numbers over the block; room holds 32·N.
template <int N>
DEVICE void block_totals(Sum (&v)[N], Sum *room) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = warp_total(v[i]);
    if (lane == 0) room[i * 32 + warp] = v[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = warp_total(lane < warps ? room[i * 32 + lane] : 0);
  __syncthreads();
}

// Best is a number and its index; the lowest index of equals is better.
struct Best {
  float value;
  int index;
};
DEVICE bool better(float v, int i, Best b) { return b.index < 0 || v > b.value || (v == b.value && i < b.index); }

DEVICE Best block_best(Best b, Sum *room) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float *values = (float *)room;
  int *indexes = (int *)(room + 32);
  auto reduce = [&]() {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      float v = __shfl_xor_sync(kAllLanes, b.value, o);
      int i = __shfl_xor_sync(kAllLanes, b.index, o);
      if (i >= 0 && better(v, i, b)) b = {v, i};
    }
  };
  reduce();
  if (lane == 0) {
    values[warp] = b.value;
    indexes[warp] = b.index;
  }
  __syncthreads();
  b = lane < warps ? Best{values[lane], indexes[lane]} : Best{-INFINITY_F, -1};
  reduce();
  __syncthreads();
  return b;
}

// select is the largest bound for which the weights of numbers with ordered forms of at
// least bound sum to target or more; 0 where all of them do not. each calls its argument
// with every number's ordered form and weight.
template <class Each>
DEVICE unsigned select(Sum target, Sum *room, Each each) {
  unsigned bound = 0;
  for (int shift = 30; shift >= 0; shift -= 3) {
    Sum sums[7] = {};
    int pivots = shift == 30 ? 3 : 7;
    each([&](unsigned key, Sum weight) {
#pragma unroll
      for (int j = 0; j < 7; j++)
        if (j < pivots && key >= bound + (unsigned(j + 1) << shift)) sums[j] += weight;
    });
    block_totals<7>(sums, room);
    int most = 0;
#pragma unroll
    for (int j = 0; j < 7; j++)
      if (j < pivots && sums[j] >= target) most = j + 1;
    bound += unsigned(most) << shift;
  }
  return bound;
}

// nth is the index, in the order of indexes, at which the weights before and at it first
// sum to more than target; the last one with a weight where none does. Each warp takes a
// run of indexes. room holds 33 numbers, found is shared.
template <class Weight>
DEVICE int nth(int n, Sum target, Sum *room, int *found, Weight weight) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  int run = ceil_div(ceil_div(n, warps), 32) * 32, from = min(n, warp * run), to = min(n, from + run), last = -1;
  Sum mine = 0;
  for (int i = from + lane; i < to; i += 32) {
    Sum w = weight(i);
    mine += w;
    if (w > 0) last = i;
  }
  mine = warp_total(mine);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) last = max(last, __shfl_xor_sync(kAllLanes, last, o));
  if (threadIdx.x == 0) *found = -1;
  if (lane == 0) room[warp] = mine;
  __syncthreads();
  if (lane == 0) atomicMax(found, last);
  Sum before = 0;
  for (int w = 0; w < warp; w++) before += room[w];
  __syncthreads();
  if (before <= target && before + mine > target) {  // one warp's run, all its lanes
    for (int i0 = from; i0 < to; i0 += 32) {
      int i = i0 + lane;
      Sum w = i < to ? weight(i) : 0, sum = w;
#pragma unroll
      for (int o = 1; o < 32; o <<= 1) {
        Sum v = __shfl_up_sync(kAllLanes, sum, o);
        if (lane >= o) sum += v;
      }
      unsigned beyond = __ballot_sync(kAllLanes, before + sum > target);
      if (beyond) {
        if (lane == 0) *found = i0 + __ffs(int(beyond)) - 1;
        break;
      }
      before += __shfl_sync(kAllLanes, sum, 31);
    }
  }
  __syncthreads();
  int out = *found;
  __syncthreads();
  return out;
}

// uniform is the number in [0,1) that a position of a request draws (backend.Random).
DEVICE double uniform(unsigned long long seed, int position) {
  unsigned long long z = seed + 0x9e3779b97f4a7c15ull * ((unsigned long long)(unsigned(position)) + 1);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return double((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

DEVICE bool bit(const unsigned *bits, int i) { return bits == nullptr || (bits[i / 32] >> (i % 32) & 1); }

// usable says whether no logit is NaN or +Inf and one that is not masked is finite.
template <class Get>
DEVICE bool usable(int n, const float *z, Get get, Sum *room) {
  Sum v[2] = {};
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float x = z[i];
    if (!(x < INFINITY_F)) v[0]++;
    if (get(i) > -INFINITY_F) v[1]++;
  }
  block_totals<2>(v, room);
  return v[0] == 0 && v[1] > 0;
}

// penalize divides or multiplies the logits of tokens of the history, and takes off what
// frequency and presence ask for, counting tokens in runs that shared memory holds.
DEVICE void penalize(const SampleArgs &a, const SampleRow &r, float *z, unsigned *counters) {
  const Pages &p = a.pages;
  const int *table = p.tables + size_t(r.seq) * p.width;
  for (int base = 0; base < a.vocab; base += kCounters) {
    int n = min(kCounters, a.vocab - base);
    for (int i = threadIdx.x; i < n; i += blockDim.x) counters[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < r.history; i += blockDim.x) {
      int id = ((const int *)(page_at(p, table[i / p.block]) + a.plane))[i % p.block] - base;
      if (id < 0 || id >= n) continue;
      atomicOr(counters + id, 0x80000000u);
      if (i >= r.prompt) atomicAdd(counters + id, 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      if (counters[i] == 0) continue;
      unsigned count = counters[i] & 0x7fffffffu;
      float v = z[base + i];
      v = v > 0.0f ? v / r.repetition : v * r.repetition;
      if (count > 0) {
        v -= r.frequency * float(count);
        v -= r.presence;
      }
      z[base + i] = v;
    }
    __syncthreads();
  }
}

// choose is the token of edited logits; get masks them.
template <class Get>
DEVICE int choose(const SampleArgs &a, const SampleRow &r, Get get, Sum *room, int *found) {
  Best best{-INFINITY_F, -1};
  for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) {
    float v = get(i);
    if (better(v, i, best)) best = {v, i};
  }
  best = block_best(best, room);
  if (r.temperature < 1e-5f) return best.index;
  float top = best.value, t = fmaxf(r.temperature, 0.01f), least = -INFINITY_F;
  auto all = [&](auto with) {
    for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) with(i, get(i));
  };
  if (r.top_k > 0 && r.top_k < a.vocab)
    least = unordered(select(Sum(r.top_k), room, [&](auto with) { all([&](int, float v) { with(ordered(v), Sum(1)); }); }));
  auto weight = [&](float v) {
    float w = expf((v - top) / t);
    return w < r.min_p || v < least ? Sum(0) : fixed(w);
  };
  float edge = -INFINITY_F;  // the nucleus ends with logits of edge, of which those to this index are in it
  int edge_index = a.vocab;
  if (r.top_p < 1.0f) {
    Sum sums[1] = {};
    all([&](int, float v) { sums[0] += weight(v); });
    block_totals<1>(sums, room);
    double enough = ceil(double(r.top_p) * double(sums[0]));
    Sum target = enough < 1.0 ? 1 : Sum(enough);
    edge = unordered(select(target, room, [&](auto with) { all([&](int, float v) { with(ordered(v), weight(v)); }); }));
    Sum ends[2] = {};  // what lies above the edge, and how many at it
    all([&](int, float v) {
      if (v > edge) ends[0] += weight(v);
      if (v == edge) ends[1]++;
    });
    block_totals<2>(ends, room);
    Sum w = weight(edge), in = w > 0 && target > ends[0] ? (target - ends[0] + w - 1) / w : 1;
    if (in < ends[1]) edge_index = nth(a.vocab, in - 1, room, found, [&](int i) { return Sum(get(i) == edge); });
  }
  auto left = [&](int i) {
    float v = get(i);
    return v > edge || (v == edge && i <= edge_index) ? weight(v) : Sum(0);
  };
  Sum sums[1] = {};
  for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) sums[0] += left(i);
  block_totals<1>(sums, room);
  return nth(a.vocab, Sum(uniform(r.seed, r.position) * double(sums[0])), room, found, left);
}

// report fills logprob, rank and the best tokens from the raw logits that get gives.
template <class Get>
DEVICE void report(const SampleArgs &a, const SampleRow &r, int row, int token, Get get, Sum *room) {
  Best best{-INFINITY_F, -1};
  for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) {
    float v = get(i);
    if (better(v, i, best)) best = {v, i};
  }
  best = block_best(best, room);
  float mine = get(token);
  Sum sums[2] = {};
  for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) {
    float v = get(i);
    sums[0] += fixed(expf(v - best.value));
    sums[1] += v >= mine;
  }
  block_totals<2>(sums, room);
  double lse = double(best.value) + log(double(sums[0]) / double(kOne));
  if (threadIdx.x == 0) {
    a.logprob[row] = float(double(mine) - lse);
    a.rank[row] = int(sums[1]);
  }
  for (int k = 0; k < min(r.num_top, a.vocab); k++) {
    if (k > 0) {  // the best of those behind the one before
      Best last = best;
      best = {-INFINITY_F, -1};
      for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) {
        float v = get(i);
        if ((v < last.value || (v == last.value && i > last.index)) && better(v, i, best)) best = {v, i};
      }
      best = block_best(best, room);
    }
    if (threadIdx.x == 0) {
      a.top_ids[size_t(row) * a.top_width + k] = best.index;
      a.top_probs[size_t(row) * a.top_width + k] = float(double(best.value) - lse);
    }
  }
}

// sample: a block of whole warps for each row; shared memory for kCounters ints.
KERNEL(sample, SampleArgs, 1024) {
  DYNAMIC_SHARED(memory);
  __shared__ Sum room[7 * 32 + 1];
  __shared__ int found;
  int row = blockIdx.x;
  const SampleRow &r = a.rows[row];
  float *z = a.logits + size_t(row) * a.vocab;
  const unsigned *grammar = r.flags & kUseGrammar ? a.grammar + size_t(row) * a.words : nullptr;
  const unsigned *allowed = r.flags & kUseAllowed ? a.allowed + size_t(row) * a.words : nullptr;
  auto given = [&](int i) { return bit(grammar, i) ? z[i] : -INFINITY_F; };
  auto edited = [&](int i) { return bit(grammar, i) && bit(allowed, i) ? z[i] : -INFINITY_F; };
  int token = -1;
  const float *raw = z;
  bool wants = r.flags & kWantLogprob;
  if (usable(a.vocab, z, given, room)) {
    bool penalties = r.repetition != 1.0f || r.frequency != 0.0f || r.presence != 0.0f;
    if (r.flags & kUseTarget) {
      token = r.target;
    } else {
      if (wants && (penalties || r.num_bias > 0)) {
        float *copy = a.raw + size_t(row) * a.vocab;
        for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) copy[i] = z[i];
        raw = copy;
        __syncthreads();
      }
      if (threadIdx.x == 0)  // entries may name a token twice: one after the other
        for (int i = 0; i < r.num_bias; i++) {
          BiasEntry b = a.bias[size_t(row) * a.bias_width + i];
          z[b.token] += b.value;
        }
      __syncthreads();
      if (penalties && r.history > 0) penalize(a, r, z, (unsigned *)memory);
      bool fine = usable(a.vocab, z, edited, room);
      if (fine) token = choose(a, r, edited, room, &found);
    }
    if (wants && token >= 0) report(a, r, row, token, [&](int i) { return bit(grammar, i) ? raw[i] : -INFINITY_F; }, room);
  }
  if (threadIdx.x == 0) {
    a.sampled[row] = token;
    a.status[row] = token < 0;
    if (!wants || token < 0) {
      a.logprob[row] = 0.0f;
      a.rank[row] = 0;
    }
  }
}
