// Logits to tokens in the order of kernels/ref's Sample: masks, raw logprobs, edits, penalties,
// temperature, min-p, top-k, top-p, the draw. Several blocks work on each row (sample.cu);
// their slices do not change the result.
//
// Nothing is sorted, see sample.cu. If there are too many candidates, one block finds the k-th
// largest logit and the edge of the nucleus, three bits of their ordered form at a time, with
// passes that sum what is above seven pivots (choose). Weights are summed as integers of 2^−45,
// so that no sum depends on the order of threads or on slices.
#pragma once
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
  float *raw;                // [rows, vocab]: raw logits of rows that want logprobs and whose logits are edited
  int *sampled, *status, *rank;  // [rows]
  float *logprob;                // [rows]
  int *top_ids;                  // [rows, top_width]
  float *top_probs;
  int *reported;    // [rows]: the tokens once more, where the host reads them; kernels read `sampled`
  Pages pages;     // the class with the token plane
  long long plane;  // where it begins in a page
  int vocab, words, bias_width, top_width;
  unsigned char *work;  // [rows, kRowWork]; previous content does not matter
  int slices, pad;      // of a row, at most kSlices
  unsigned *finished;   // [rows] with several slices: counters of their blocks, zero before and after
};

typedef unsigned long long Sum;
constexpr float kOne = 35184372088832.0f;  // 2^45: a weight of 1
constexpr int kCounters = 11264;           // tokens whose history is counted at a time, in shared memory

DEVICE Sum fixed(float w) { return Sum(double(w) * double(kOne)); }

// ordered maps floats to integers of the same order, except NaNs.
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

// block_totals sums N numbers over the block; scratch holds 32·N.
template <int N>
DEVICE void block_totals(Sum (&v)[N], Sum *scratch) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = warp_total(v[i]);
    if (lane == 0) scratch[i * 32 + warp] = v[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = warp_total(lane < warps ? scratch[i * 32 + lane] : 0);
  __syncthreads();
}

// Best is a number and its index; among equal numbers the lowest index is better.
struct Best {
  float value;
  int index;
};
DEVICE bool better(float v, int i, Best b) { return b.index < 0 || v > b.value || (v == b.value && i < b.index); }

DEVICE Best warp_best(Best b) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    float v = __shfl_xor_sync(kAllLanes, b.value, o);
    int i = __shfl_xor_sync(kAllLanes, b.index, o);
    if (i >= 0 && better(v, i, b)) b = {v, i};
  }
  return b;
}

DEVICE Best block_best(Best b, Sum *scratch) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float *values = (float *)scratch;
  int *indexes = (int *)(scratch + 32);
  b = warp_best(b);
  if (lane == 0) {
    values[warp] = b.value;
    indexes[warp] = b.index;
  }
  __syncthreads();
  b = warp_best(lane < warps ? Best{values[lane], indexes[lane]} : Best{-INFINITY_F, -1});
  __syncthreads();
  return b;
}

// select returns the largest bound for which the weights of numbers with ordered forms of at
// least bound sum to target or more; 0 if all weights do not. each calls its argument with
// every number's ordered form and weight.
template <class Each>
DEVICE unsigned select(Sum target, Sum *scratch, Each each) {
  unsigned bound = 0;
  for (int shift = 30; shift >= 0; shift -= 3) {
    Sum sums[7] = {};
    int pivots = shift == 30 ? 3 : 7;
    each([&](unsigned key, Sum weight) {
#pragma unroll
      for (int j = 0; j < 7; j++)
        if (j < pivots && key >= bound + (unsigned(j + 1) << shift)) sums[j] += weight;
    });
    block_totals<7>(sums, scratch);
    int most = 0;
#pragma unroll
    for (int j = 0; j < 7; j++)
      if (j < pivots && sums[j] >= target) most = j + 1;
    bound += unsigned(most) << shift;
  }
  return bound;
}

// nth returns the first index at which the weights up to it sum to more than target; if none
// does, the last index with a weight. Each warp takes a range of indexes. scratch holds 33
// numbers, found is shared.
template <class Weight>
DEVICE int nth(int n, Sum target, Sum *scratch, int *found, Weight weight) {
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
  if (lane == 0) scratch[warp] = mine;
  __syncthreads();
  if (lane == 0) atomicMax(found, last);
  Sum before = 0;
  for (int w = 0; w < warp; w++) before += scratch[w];
  __syncthreads();
  if (before <= target && before + mine > target) {  // one warp's range: all its lanes
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

// uniform returns the number in [0,1) for a position of a request (backend.Random).
DEVICE double uniform(unsigned long long seed, int position) {
  unsigned long long z = seed + 0x9e3779b97f4a7c15ull * ((unsigned long long)(unsigned(position)) + 1);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return double((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

DEVICE bool bit(const unsigned *bits, int i) { return bits == nullptr || (bits[i / 32] >> (i % 32) & 1); }

// penalize applies the repetition penalty to tokens of the history and subtracts the frequency
// and presence penalties. It counts tokens in ranges that fit in shared memory, and changes
// tokens [from, to).
DEVICE void penalize(const SampleArgs &a, const SampleRow &r, float *z, unsigned *counters, int from, int to) {
  const Pages &p = a.pages;
  const int *table = p.tables + size_t(r.seq) * p.width;
  for (int base = from; base < to; base += kCounters) {
    int n = min(kCounters, to - base);
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

// choose draws a token from edited logits, whose largest is top; get returns a masked logit.
template <class Get>
DEVICE int choose(const SampleArgs &a, const SampleRow &r, float top, Get get, Sum *scratch, int *found) {
  float t = fmaxf(r.temperature, 0.01f), least = -INFINITY_F;
  auto all = [&](auto with) {
    for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) with(i, get(i));
  };
  if (r.top_k > 0 && r.top_k < a.vocab)
    least = unordered(select(Sum(r.top_k), scratch, [&](auto with) { all([&](int, float v) { with(ordered(v), Sum(1)); }); }));
  auto weight = [&](float v) {
    float w = expf((v - top) / t);
    return w < r.min_p || v < least ? Sum(0) : fixed(w);
  };
  float edge = -INFINITY_F;  // the nucleus ends with logits equal to edge, up to this index
  int edge_index = a.vocab;
  if (r.top_p < 1.0f) {
    Sum sums[1] = {};
    all([&](int, float v) { sums[0] += weight(v); });
    block_totals<1>(sums, scratch);
    double enough = ceil(double(r.top_p) * double(sums[0]));
    Sum target = enough < 1.0 ? 1 : Sum(enough);
    edge = unordered(select(target, scratch, [&](auto with) { all([&](int, float v) { with(ordered(v), weight(v)); }); }));
    Sum ends[2] = {};  // the weights above the edge, and at it
    all([&](int, float v) {
      if (v > edge) ends[0] += weight(v);
      if (v == edge) ends[1]++;
    });
    block_totals<2>(ends, scratch);
    Sum w = weight(edge), in = w > 0 && target > ends[0] ? (target - ends[0] + w - 1) / w : 1;
    if (in < ends[1]) edge_index = nth(a.vocab, in - 1, scratch, found, [&](int i) { return Sum(get(i) == edge); });
  }
  auto left = [&](int i) {
    float v = get(i);
    return v > edge || (v == edge && i <= edge_index) ? weight(v) : Sum(0);
  };
  Sum sums[1] = {};
  for (int i = threadIdx.x; i < a.vocab; i += blockDim.x) sums[0] += left(i);
  block_totals<1>(sums, scratch);
  return nth(a.vocab, Sum(uniform(r.seed, r.position) * double(sums[0])), scratch, found, left);
}

// kSlices: slices of a row; kCandidates: candidates at the edges before one block searches.
constexpr int kSlices = 64, kBins = 1024, kCandidates = 2048;
constexpr int kTops = 32;  // best logits of a slice; for more, one block reads the whole row
constexpr float kBinsOfE = 32.0f;  // the last bin holds weights that are 0

// Part is the result of a slice: the best of the raw and of the edited logits, and the counts
// of NaNs and of unmasked logits.
struct Part {
  float raw, best;
  int raw_index, index;
  int raw_bad, raw_there, bad, there;
};

struct RowWork {
  Sum weights[kBins], slices[kSlices], exponentials;
  Part parts[kSlices];
  unsigned counts[kBins];
  int arrived[2], rank, candidates;
  Best listed[kCandidates];  // candidates at the edges, then the best of each slice
};
constexpr int kRowWork = 32 << 10;  // SampleWorkspace of args.go
static_assert(sizeof(RowWork) <= kRowWork && kSlices * kTops <= kCandidates, "");

// Slice is the part of a row that a block works on.
struct Slice {
  const SampleRow *r;
  float *z;          // edited logits
  const float *raw;  // logits before edits
  const unsigned *grammar, *allowed;
  RowWork *work;
  int row, from, to;
  bool wants, penalties, edits;
};
DEVICE float given(const Slice &w, int i) { return bit(w.grammar, i) ? w.raw[i] : -INFINITY_F; }
DEVICE float edited(const Slice &w, int i) { return bit(w.grammar, i) && bit(w.allowed, i) ? w.z[i] : -INFINITY_F; }

DEVICE Slice slice_of(const SampleArgs &a) {
  Slice w;
  w.row = blockIdx.y;
  w.r = a.rows + w.row;
  w.z = a.logits + size_t(w.row) * a.vocab;
  w.grammar = w.r->flags & kUseGrammar ? a.grammar + size_t(w.row) * a.words : nullptr;
  w.allowed = w.r->flags & kUseAllowed ? a.allowed + size_t(w.row) * a.words : nullptr;
  w.wants = w.r->flags & kWantLogprob;
  w.penalties = w.r->history > 0 && (w.r->repetition != 1.0f || w.r->frequency != 0.0f || w.r->presence != 0.0f);
  w.edits = !(w.r->flags & kUseTarget) && (w.penalties || w.r->num_bias > 0);
  w.raw = w.wants && w.edits ? a.raw + size_t(w.row) * a.vocab : w.z;
  w.work = (RowWork *)(a.work + size_t(w.row) * kRowWork);
  int each = ceil_div(a.vocab, a.slices);
  w.from = min(a.vocab, int(blockIdx.x) * each);
  w.to = min(a.vocab, w.from + each);
  return w;
}

// Whole combines the slices.
struct Whole {
  Best raw, best;
  bool usable;  // there is a token: drawn, the best, or the target
  bool draws;   // it is drawn
};

DEVICE Whole whole_of(const SampleArgs &a, const Slice &w) {
  Whole all = {{-INFINITY_F, -1}, {-INFINITY_F, -1}, false, false};
  int lane = threadIdx.x & 31;
  unsigned bad = 0, raw_there = 0, edited_bad = 0, there = 0;
  for (int i0 = 0; i0 < a.slices; i0 += 32) {
    Part p = {};
    if (i0 + lane < a.slices) {
      p = w.work->parts[i0 + lane];
      if (p.raw_index >= 0 && better(p.raw, p.raw_index, all.raw)) all.raw = {p.raw, p.raw_index};
      if (p.index >= 0 && better(p.best, p.index, all.best)) all.best = {p.best, p.index};
    }
    bad |= __ballot_sync(kAllLanes, p.raw_bad > 0);
    raw_there |= __ballot_sync(kAllLanes, p.raw_there > 0);
    edited_bad |= __ballot_sync(kAllLanes, p.bad > 0);
    there |= __ballot_sync(kAllLanes, p.there > 0);
  }
  all.raw = warp_best(all.raw);
  all.best = warp_best(all.best);
  bool target = w.r->flags & kUseTarget;
  all.usable = bad == 0 && raw_there != 0 && (target || (edited_bad == 0 && there != 0));
  all.draws = all.usable && !target && !(w.r->temperature < 1e-5f);
  return all;
}

// Weigher computes weights and bins.
struct Weigher {
  float top, t, min_p, scale;
};
DEVICE Weigher weigher(const SampleRow &r, float top) {
  float t = fmaxf(r.temperature, 0.01f);
  return {top, t, r.min_p, kBinsOfE / t};
}
DEVICE Sum weight_of(const Weigher &a, float v) {
  float w = expf((v - a.top) / a.t);
  return w < a.min_p ? Sum(0) : fixed(w);
}
DEVICE int bin_of(const Weigher &a, float v) {
  float x = (a.top - v) * a.scale;
  return x < float(kBins - 1) ? int(x) : kBins - 1;
}
