// Logits to tokens, with several blocks for each row: if there are few rows, one multiprocessor
// for each is too slow for a vocabulary. There are four launches, sample_edit, sample_weigh,
// sample_draw and sample_report, with a block for each slice of a row (grid.x the slices,
// grid.y the rows); the first is enough where no row draws or wants logprobs. Sums are integers, so that the slices do not change a result.
//
// Weights fall into 1,024 bins by the distance of a logit from the largest: 32 bins for each
// factor e. The sums of the bins show which bins hold the k-th logit and the edge of the
// nucleus. The candidates in these bins are few, and are gathered and ranked. If there are too
// many, one block searches (choose).
#include "sample.cuh"

// is_last_block reports to all threads whether a block is the last of its row to finish.
DEVICE bool is_last_block(int *arrived, int *found) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *found = atomicAdd(arrived, 1) + 1 == int(gridDim.x);
  __syncthreads();
  bool last = *found;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// token_of returns the token of a row that does not draw: the best, or the target; −1: none.
DEVICE int token_of(const Slice &w, const Whole &all) {
  if (!all.usable) return -1;
  return w.r->flags & kUseTarget ? w.r->target : all.best.index;
}

// report_token writes the token of a row, −1: none, which has no logprob yet.
DEVICE void report_token(const SampleArgs &a, const Slice &w, int token) {
  a.sampled[w.row] = a.reported[w.row] = token;
  a.status[w.row] = token < 0;
  if (w.wants && token >= 0) return;
  a.logprob[w.row] = 0.0f;
  a.rank[w.row] = 0;
}

// sample_edit: shared memory for kCounters ints. The last block of a row that neither draws nor wants logprobs reports its
// token: a step that has only such rows needs no other launch.
KERNEL(sample_edit, SampleArgs, 1024) {
  DYNAMIC_SHARED(memory);
  __shared__ Sum scratch[2 * 32];
  Slice w = slice_of(a);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kBins; i += gridDim.x * blockDim.x) {
    w.work->weights[i] = 0;
    w.work->counts[i] = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    w.work->exponentials = 0;
    w.work->arrived[0] = w.work->arrived[1] = w.work->rank = w.work->candidates = 0;
  }
  auto judge = [&](auto get, Best *best, int *bad, int *there) {
    Sum v[2] = {};
    *best = {-INFINITY_F, -1};
    for (int i = w.from + threadIdx.x; i < w.to; i += blockDim.x) {
      float x = get(i);
      if (!(w.z[i] < INFINITY_F)) v[0]++;
      if (x > -INFINITY_F) v[1]++;
      if (better(x, i, *best)) *best = {x, i};
    }
    block_totals<2>(v, scratch);
    *best = block_best(*best, scratch);
    *bad = int(v[0]);
    *there = int(v[1]);
  };
  Part p;
  Best raw, best;
  judge([&](int i) { return bit(w.grammar, i) ? w.z[i] : -INFINITY_F; }, &raw, &p.raw_bad, &p.raw_there);
  if (w.edits) {
    if (w.raw != w.z)
      for (int i = w.from + threadIdx.x; i < w.to; i += blockDim.x) ((float *)w.raw)[i] = w.z[i];
    __syncthreads();
    if (threadIdx.x == 0)  // one after the other: entries may name a token twice
      for (int i = 0; i < w.r->num_bias; i++) {
        BiasEntry b = a.bias[size_t(w.row) * a.bias_width + i];
        if (b.token >= w.from && b.token < w.to) w.z[b.token] += b.value;
      }
    __syncthreads();
    if (w.penalties) penalize(a, *w.r, w.z, (unsigned *)memory, w.from, w.to);
  }
  if (w.edits || w.allowed != nullptr) {
    judge([&](int i) { return edited(w, i); }, &best, &p.bad, &p.there);
  } else {
    best = raw;
    p.bad = p.raw_bad;
    p.there = p.raw_there;
  }
  if (threadIdx.x == 0) {
    p.raw = raw.value;
    p.raw_index = raw.index;
    p.best = best.value;
    p.index = best.index;
    w.work->parts[blockIdx.x] = p;
  }
  __shared__ int found;
  int *arrived = gridDim.x > 1 ? (int *)a.finished + w.row : nullptr;
  if (arrived && !is_last_block(arrived, &found)) return;
  if (arrived == nullptr) __syncthreads();  // the part is there
  if (arrived && threadIdx.x == 0) *arrived = 0;
  Whole all = whole_of(a, w);
  if (!all.draws && !w.wants && threadIdx.x == 0) report_token(a, w, token_of(w, all));
}

KERNEL(sample_weigh, SampleArgs, 1024) {
  __shared__ Sum weights[kBins], scratch[32];
  __shared__ unsigned counts[kBins];
  Slice w = slice_of(a);
  Whole all = whole_of(a, w);
  if (w.wants && all.usable) {
    Sum sums[1] = {};
    for (int i = w.from + threadIdx.x; i < w.to; i += blockDim.x) sums[0] += fixed(expf(given(w, i) - all.raw.value));
    block_totals<1>(sums, scratch);
    if (threadIdx.x == 0) atomicAdd(&w.work->exponentials, sums[0]);
  }
  if (!all.draws) return;
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    weights[i] = 0;
    counts[i] = 0;
  }
  __syncthreads();
  Weigher with = weigher(*w.r, all.best.value);
  for (int i = w.from + threadIdx.x; i < w.to; i += blockDim.x) {
    float v = edited(w, i);
    int n = bin_of(with, v);
    if (n == kBins - 1) continue;
    Sum weight = weight_of(with, v);
    atomicAdd(counts + n, 1u);
    if (weight > 0) atomicAdd(weights + n, weight);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    if (counts[i] > 0) atomicAdd(w.work->counts + i, counts[i]);
    if (weights[i] > 0) atomicAdd(w.work->weights + i, weights[i]);
  }
}

// Edges are the bins of a row's edges. The edge of a nucleus has several possible bins while
// the count of the k-th logit's bin is unknown.
struct Edges {
  int k;             // the bin of the k-th logit, kBins−1: none
  int lo, hi;        // the bins in which the nucleus may end, kBins: none
  unsigned k_ahead;  // logits before bin k
  Sum k_above;       // weights before bin k
  Sum lo_above;      // weights before bin lo
};

DEVICE Sum nucleus(const SampleRow &r, Sum total) {
  double enough = ceil(double(r.top_p) * double(total));
  return enough < 1.0 ? 1 : Sum(enough);
}

// edges_of finds the edges; warp 0 does the work, the others wait.
DEVICE Edges edges_of(const SampleArgs &a, const Slice &w, Edges *out) {
  const SampleRow &r = *w.r;
  int lane = threadIdx.x & 31;
  if (threadIdx.x < 32) {
    constexpr int each = kBins / 32;
    unsigned count = 0;
    Sum weight = 0;
    for (int i = 0; i < each; i++) {
      count += w.work->counts[lane * each + i];
      weight += w.work->weights[lane * each + i];
    }
    unsigned counted = count;
    Sum cumulative = weight;  // of the bins up to this lane's last
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      unsigned c = __shfl_up_sync(kAllLanes, counted, o);
      Sum v = __shfl_up_sync(kAllLanes, cumulative, o);
      if (lane >= o) {
        counted += c;
        cumulative += v;
      }
    }
    // find returns the first bin at which the sums satisfy `reached`; one lane
    // finds it.
    auto find = [&](auto reached, int none) {
      unsigned lanes = __ballot_sync(kAllLanes, reached(counted, cumulative));
      int bin = none;
      if (lanes != 0 && lane == __ffs(int(lanes)) - 1) {
        unsigned c = counted - count;
        Sum v = cumulative - weight;
        for (int i = 0; i < each && bin == none; i++) {
          c += w.work->counts[lane * each + i];
          v += w.work->weights[lane * each + i];
          if (reached(c, v)) bin = lane * each + i;
        }
      }
      return lanes == 0 ? none : __shfl_sync(kAllLanes, bin, __ffs(int(lanes)) - 1);
    };
    // before sums the bins before `bin`.
    auto before = [&](int bin, unsigned *c, Sum *v) {
      *c = 0;
      *v = 0;
      for (int i = lane; i < bin; i += 32) {
        *c += w.work->counts[i];
        *v += w.work->weights[i];
      }
      *v = warp_total(*v);
#pragma unroll
      for (int o = 16; o > 0; o >>= 1) *c += __shfl_xor_sync(kAllLanes, *c, o);
    };
    Edges e = {kBins - 1, kBins, kBins, 0, 0, 0};
    if (r.top_k > 0 && r.top_k < a.vocab) e.k = find([&](unsigned c, Sum) { return c >= unsigned(r.top_k); }, kBins - 1);
    before(e.k, &e.k_ahead, &e.k_above);
    if (r.top_p < 1.0f) {
      Sum least = nucleus(r, e.k_above), most = nucleus(r, e.k_above + (e.k < kBins - 1 ? w.work->weights[e.k] : 0));
      e.lo = find([&](unsigned, Sum v) { return v >= least; }, kBins - 2);
      e.hi = find([&](unsigned, Sum v) { return v >= most; }, kBins - 2);
      unsigned c;
      before(e.lo, &c, &e.lo_above);
    }
    if (lane == 0) *out = e;
  }
  __syncthreads();
  return *out;
}

// draw returns the token of a row whose candidates are gathered; one block calls it.
DEVICE int draw(const SampleArgs &a, const Slice &w, const Edges &e, const Weigher &with, unsigned char *memory, Sum *scratch, int *found) {
  __shared__ float least, edge;
  __shared__ int edge_index;
  __shared__ unsigned ties;
  __shared__ Sum above, slices[kSlices];
  const SampleRow &r = *w.r;
  int n = w.work->candidates;
  Sum *weights = (Sum *)memory;
  float *values = (float *)(weights + kCandidates);
  int *indexes = (int *)(values + kCandidates);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    values[i] = w.work->listed[i].value;
    indexes[i] = w.work->listed[i].index;
    weights[i] = weight_of(with, values[i]);
  }
  for (int i = threadIdx.x; i < a.slices; i += blockDim.x) slices[i] = w.work->slices[i];
  if (threadIdx.x == 0) {
    least = edge = -INFINITY_F;
    edge_index = a.vocab;
    ties = 0;
  }
  __syncthreads();
  if (e.k < kBins - 1) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      if (bin_of(with, values[i]) != e.k) continue;
      unsigned better = e.k_ahead, equal = 0;
      for (int j = 0; j < n; j++)
        if (bin_of(with, values[j]) == e.k) {
          better += values[j] > values[i];
          equal += values[j] == values[i];
        }
      if (better < unsigned(r.top_k) && better + equal >= unsigned(r.top_k)) least = values[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      if (values[i] < least) weights[i] = 0;
    __syncthreads();
  }
  if (e.lo < kBins) {
    Sum sums[1] = {};
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      if (bin_of(with, values[i]) == e.k) sums[0] += weights[i];
    block_totals<1>(sums, scratch);
    Sum target = nucleus(r, e.k_above + sums[0]);
    auto inside = [&](int i) { return bin_of(with, values[i]) >= e.lo && bin_of(with, values[i]) <= e.hi; };
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      if (!inside(i)) continue;
      Sum more = e.lo_above, same = 0;
      unsigned equal = 0;
      for (int j = 0; j < n; j++) {
        if (!inside(j)) continue;
        if (values[j] > values[i]) more += weights[j];
        if (values[j] == values[i]) {
          same += weights[j];
          equal++;
        }
      }
      if (more < target && more + same >= target) {  // all values equal to the edge
        edge = values[i];
        above = more;
        ties = equal;
      }
    }
    __syncthreads();
    Sum one = weight_of(with, edge), in = ties > 0 && one > 0 ? (target - above + one - 1) / one : 1;
    if (in < ties)
      for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (values[i] != edge) continue;
        Sum before = 0;
        for (int j = 0; j < n; j++) before += values[j] == edge && indexes[j] < indexes[i];
        if (before == in - 1) edge_index = indexes[i];
      }
    __syncthreads();
  }
  auto in = [&](float v, int i) { return v >= least && (v > edge || (v == edge && i <= edge_index)); };
  int each = ceil_div(a.vocab, a.slices);
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    if (weights[i] > 0 && in(values[i], indexes[i])) atomicAdd(slices + indexes[i] / each, weights[i]);
  __syncthreads();
  Sum total = 0, before = 0;
  for (int i = 0; i < a.slices; i++) total += slices[i];
  Sum target = Sum(uniform(r.seed, r.position) * double(total));
  int slice = 0, last = 0;
  for (; slice < a.slices && before + slices[slice] <= target; slice++) {
    if (slices[slice] > 0) last = slice;
    before += slices[slice];
  }
  if (slice == a.slices) {  // rounding put the target after the sum: take the last token with a weight
    slice = last;
    before = 0;
    target = ~Sum(0) >> 1;
  }
  int from = slice * each, to = min(a.vocab, from + each);
  int i = nth(to - from, target - before, scratch, found, [&](int i) {
    float v = edited(w, from + i);
    return in(v, from + i) ? weight_of(with, v) : Sum(0);
  });
  return i < 0 ? i : from + i;
}

constexpr int kDrawThreads = 512;  // it needs more registers than 1,024 threads have

// sample_draw: shared memory for kCandidates of 16 bytes.
KERNEL(sample_draw, SampleArgs, kDrawThreads) {
  DYNAMIC_SHARED(memory);
  __shared__ Sum scratch[7 * 32 + 1];
  __shared__ int found;
  __shared__ Edges edges;
  Slice w = slice_of(a);
  Whole all = whole_of(a, w);
  Weigher with = weigher(*w.r, all.best.value);
  Edges e = {};
  if (all.draws) {
    e = edges_of(a, w, &edges);
    int certain = min(e.k, e.lo);  // bins before it are selected, whatever the edges are
    Sum sums[1] = {};
    for (int i = w.from + threadIdx.x; i < w.to; i += blockDim.x) {
      float v = edited(w, i);
      int n = bin_of(with, v);
      if (n < certain) {
        sums[0] += weight_of(with, v);
      } else if (n < kBins - 1 && (n == e.k || (n >= e.lo && n <= e.hi))) {
        int at = atomicAdd(&w.work->candidates, 1);
        if (at < kCandidates) w.work->listed[at] = {v, i};
      }
    }
    block_totals<1>(sums, scratch);
    if (threadIdx.x == 0) w.work->slices[blockIdx.x] = sums[0];
  }
  if (!is_last_block(w.work->arrived, &found)) return;
  int token = token_of(w, all);
  if (all.draws) {
    if (w.work->candidates <= kCandidates)
      token = draw(a, w, e, with, memory, scratch, &found);
    else
      token = choose(a, *w.r, all.best.value, [&](int i) { return edited(w, i); }, scratch, &found);
  }
  if (threadIdx.x == 0) report_token(a, w, token);
}

KERNEL(sample_report, SampleArgs, 1024) {
  __shared__ Sum scratch[2 * 32];
  __shared__ int found;
  Slice w = slice_of(a);
  int token = a.sampled[w.row], top = min(w.r->num_top, a.vocab), width = a.top_width;
  if (!w.wants || token < 0) return;
  float mine = given(w, token);
  Sum sums[1] = {};
  for (int i = w.from + threadIdx.x; i < w.to; i += blockDim.x) sums[0] += given(w, i) >= mine;
  block_totals<1>(sums, scratch);
  if (threadIdx.x == 0) atomicAdd(&w.work->rank, int(sums[0]));
  // each_ranked calls put with the best of n, then with the second best, and so on. at
  // returns the i-th and its index; a negative index means none.
  auto each_ranked = [&](int n, auto at, auto put) {
    Best last = {INFINITY_F, -1};
    for (int k = 0; k < top; k++) {
      Best best = {-INFINITY_F, -1};
      for (int i = threadIdx.x; i < n; i += blockDim.x) {
        Best b = at(i);
        if (b.index >= 0 && (b.value < last.value || (b.value == last.value && b.index > last.index)) && better(b.value, b.index, best)) best = b;
      }
      last = block_best(best, scratch);
      if (threadIdx.x == 0) put(k, last);
      if (last.index < 0) last = {-INFINITY_F, 0x7fffffff};  // there are no more
    }
  };
  if (top <= kTops)
    each_ranked(w.to - w.from, [&](int i) { return Best{given(w, w.from + i), w.from + i}; }, [&](int k, Best b) { w.work->listed[blockIdx.x * kTops + k] = b; });
  if (!is_last_block(w.work->arrived + 1, &found)) return;
  Whole all = whole_of(a, w);
  double lse = double(all.raw.value) + log(double(w.work->exponentials) / double(kOne));
  if (threadIdx.x == 0) {
    a.logprob[w.row] = float(double(mine) - lse);
    a.rank[w.row] = w.work->rank;
  }
  auto put = [&](int k, Best b) {
    a.top_ids[size_t(w.row) * width + k] = b.index;
    a.top_probs[size_t(w.row) * width + k] = float(double(b.value) - lse);
  };
  if (top <= kTops)
    each_ranked(a.slices * top, [&](int i) { return w.work->listed[i / top * kTops + i % top]; }, put);
  else
    each_ranked(a.vocab, [&](int i) { return Best{given(w, i), i}; }, put);
}
