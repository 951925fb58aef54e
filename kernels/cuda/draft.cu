// Compares a step's samples with the proposals, and makes the next proposals.
#include "numbers.cuh"

struct DraftArgs {
  const int *ids;      // [T]
  const int *first;    // [seqs+1]
  const int *rows;     // [samples] the token row of each sampled row
  const int *sampled;  // [samples], −1: nothing
  int *index;          // [T] workspace: the first sampled row of a token row, −1: none
  int *out;            // drafted: [T]; verify: the accepted row [seqs]
  int *accepted;       // verify: [seqs]
  int tokens, seqs, samples, pad;
};

// index_rows fills index; the kernel has one block.
DEVICE void index_rows(const DraftArgs &a) {
  for (int t = threadIdx.x; t < a.tokens; t += blockDim.x) a.index[t] = 0x7fffffff;
  __syncthreads();
  for (int r = threadIdx.x; r < a.samples; r += blockDim.x) atomicMin(a.index + a.rows[r], r);
  __syncthreads();
}

// drafted: one block. A token row's successor is what was sampled for it, else the next row of
// its sequence, else 0.
KERNEL(drafted, DraftArgs, 1024) {
  index_rows(a);
  for (int s = threadIdx.x >> 5; s < a.seqs; s += blockDim.x >> 5)
    for (int t = a.first[s] + int(threadIdx.x & 31); t < a.first[s + 1]; t += 32) {
      int r = a.index[t];
      a.out[t] = r < a.samples ? max(0, a.sampled[r]) : t + 1 < a.first[s + 1] ? a.ids[t + 1] : 0;
    }
}

// verify: one block, a warp for each sequence in turn. A row is kept if it is not sampled or is
// the first sampled row. It is also kept if the row before it is, and it has the token sampled
// for that row.
KERNEL(verify, DraftArgs, 1024) {
  index_rows(a);
  int lane = threadIdx.x & 31;
  for (int s = threadIdx.x >> 5; s < a.seqs; s += blockDim.x >> 5) {
    int from = a.first[s], to = a.first[s + 1], kept = -1, count = 0;
    bool before = true, sampled = false;  // before: the previous row is kept; sampled: an earlier row is sampled
    int drawn = -1;                       // the token sampled for the previous row, −2: that row is not sampled
    for (int t0 = from; t0 < to; t0 += 32) {
      int t = t0 + lane, r = t < to ? a.index[t] : a.samples, many = min(32, to - t0);
      int id = t < to ? a.ids[t] : 0, mine = r < a.samples ? a.sampled[r] : -2;
      bool my_keep = false;
      for (int l = 0; l < many; l++) {  // all lanes do the same
        int token = __shfl_sync(kAllLanes, id, l), what = __shfl_sync(kAllLanes, mine, l);
        bool is = what != -2, keep = !is || !sampled || (before && drawn != -2 && token == drawn);
        sampled = sampled || is;
        if (keep) kept = t0 + l;
        if (l == lane) my_keep = keep;
        before = keep;
        drawn = what;
      }
      if (t < to) a.index[t] = my_keep;
    }
    __syncwarp();
    for (int r = lane; r < a.samples; r += 32)  // a row may be sampled several times
      count += a.rows[r] >= from && a.rows[r] < to && a.index[a.rows[r]];
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) count += __shfl_xor_sync(kAllLanes, count, o);
    if (lane == 0) {
      a.out[s] = kept;
      a.accepted[s] = count;
    }
  }
}

struct ProposeArgs {
  const float *logits;  // [seqs, vocab]
  int *ids;             // [seqs]
  int *drafts;          // [seqs, of]
  int vocab, n, of, pad;
};

// propose: a block of whole warps for each sequence. It picks the largest logit, and the lowest
// id among equals; a NaN is less than any number.
KERNEL(propose, ProposeArgs, 1024) {
  __shared__ float values[32];
  __shared__ int indexes[32];
  const float *z = a.logits + (size_t)blockIdx.x * a.vocab;
  float best = -INFINITY_F;
  int index = a.vocab;  // none
  auto take = [&](float v, int i) {
    if (i < a.vocab && (index == a.vocab || v > best || (v == best && i < index))) {
      best = v;
      index = i;
    }
  };
  for (int i = threadIdx.x; i < a.vocab; i += blockDim.x)
    if (z[i] == z[i]) take(z[i], i);
  auto reduce = [&]() {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) take(__shfl_xor_sync(kAllLanes, best, o), __shfl_xor_sync(kAllLanes, index, o));
  };
  reduce();
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (lane == 0) {
    values[warp] = best;
    indexes[warp] = index;
  }
  __syncthreads();
  if (warp > 0) return;
  best = -INFINITY_F;
  index = a.vocab;
  if (lane < int(blockDim.x >> 5)) take(values[lane], indexes[lane]);
  reduce();
  if (lane == 0) {
    int id = index < a.vocab ? index : 0;
    a.ids[blockIdx.x] = id;
    a.drafts[(size_t)blockIdx.x * a.of + a.n] = id;
  }
}
