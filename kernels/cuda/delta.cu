// Gated delta nets: the causal convolution before them and the recurrence, with states and
// state snapshots in pages (engine/backend: Conv, DeltaNet).
#include "pages.cuh"

constexpr int kStores = 2;  // snapshots that a step stores for a sequence

struct States {
  Pages pages;              // of the class: arena, tables, widths; k is the offset of the layer's state in a page
  const int *marks;         // [seqs, 1+2·kStores] the table of snapshots, or null
  long long mark_page_bytes, mark_slab_bytes, mark_k;  // addresses of snapshots
  int mark_per_slab;
  int rows, cols;           // the inputs of the convolution in a state
  int store;                // their format
  int copies;               // of the matrices
  long long matrix_bytes;   // one copy
  long long input_bytes;    // the convolution's
};

DEVICE unsigned char *state_of(const States &s, int seq) {
  return page_at(s.pages, s.pages.tables[(long long)seq * s.pages.width]) + s.pages.k;
}
DEVICE unsigned char *mark_at(const States &s, int page) {
  if (page < 0) return nullptr;
  return s.pages.arena + (long long)(page / s.mark_per_slab) * s.mark_slab_bytes + (long long)(page % s.mark_per_slab) * s.mark_page_bytes + s.mark_k;
}
// start_snapshot returns the snapshot that a sequence begins from, or null.
DEVICE unsigned char *start_snapshot(const States &s, int seq) {
  return s.marks ? mark_at(s, s.marks[seq * (1 + 2 * kStores)]) : nullptr;
}
// snapshot_after returns the snapshot for the state of the first n tokens, or null.
DEVICE unsigned char *snapshot_after(const States &s, int seq, int n) {
  if (s.marks == nullptr) return nullptr;
  const int *m = s.marks + seq * (1 + 2 * kStores);
  for (int k = 0; k < kStores; k++)
    if (m[1 + 2 * k] >= 0 && m[2 + 2 * k] == n) return mark_at(s, m[1 + 2 * k]);
  return nullptr;
}

struct ConvArgs {
  States states;
  const float *x;  // [T, cols]
  const float *w;  // [cols, kernel]
  float *y;        // [T, cols]
  const int *first, *positions;
  int kernel, pad;
};

constexpr int kMostKernel = 8;

template <int S>
DEVICE float input_at(const unsigned char *inputs, int row, int cols, int c) {
  return Stored<S>::read(((const typename Stored<S>::type *)inputs)[(size_t)row * cols + c]);
}
template <int S>
DEVICE void put_input(unsigned char *inputs, int row, int cols, int c, float v) {
  ((typename Stored<S>::type *)inputs)[(size_t)row * cols + c] = Stored<S>::write(v);
}

// input_row returns the row of a state for the input of a position, in a state that ends before
// end.
DEVICE int input_row(const States &s, int keep, int position, int end) {
  return s.rows > keep ? position % s.rows : position - (end - s.rows);
}

constexpr int kConvRun = 32;  // tokens of a thread, more than a kernel has

// conv: grid.x divides the columns, grid.y is the sequences, grid.z divides runs of kConvRun
// tokens; a thread walks along a column. Only the blocks of a sequence's first run read and
// update its state: the inputs that it will hold are among those of the step.
template <int S>
DEVICE void conv(const ConvArgs &a) {
  const States &s = a.states;
  int c = blockIdx.x * blockDim.x + threadIdx.x, seq = blockIdx.y, keep = a.kernel - 1;
  int first = a.first[seq], count = a.first[seq + 1] - first;
  if (c >= s.cols || int(blockIdx.z) * kConvRun >= count) return;
  int start = a.positions[first], end = start + count;
  const float *x = a.x + (size_t)first * s.cols + c;
  auto input = [&](int t) { return Stored<S>::read(Stored<S>::write(x[(size_t)t * s.cols])); };  // token t of the step
  float w[kMostKernel], past[kMostKernel];  // past: the inputs before the step, the oldest first
#pragma unroll
  for (int k = 0; k < kMostKernel; k++) {
    w[k] = k < a.kernel ? a.w[(size_t)c * a.kernel + k] : 0.0f;
    past[k] = 0.0f;
  }
  if (blockIdx.z == 0) {
    unsigned char *own = state_of(s, seq), *begin = start_snapshot(s, seq);
#pragma unroll
    for (int k = 0; k < kMostKernel; k++) {
      int p = start - keep + k;
      if (k < keep && p >= 0) past[k] = input_at<S>(begin ? begin : own, input_row(s, keep, p, start), s.cols, c);
    }
    // write stores the inputs from position p up to the end of a state.
    auto write = [&](unsigned char *to, int p, int end) {
      for (; p < end; p++) {
        if (p < 0 && s.rows > keep) continue;
        float v = p >= start ? input(p - start) : 0.0f;
#pragma unroll
        for (int k = 0; k < kMostKernel; k++)
          if (p < start && k < keep && p == start - keep + k) v = past[k];
        put_input<S>(to, input_row(s, keep, p, end), s.cols, c, v);
      }
    };
    write(own, max(end - s.rows, start - keep), end);
    for (int k = 0; s.marks && k < kStores; k++) {
      const int *m = s.marks + seq * (1 + 2 * kStores) + 1 + 2 * k;
      if (m[0] >= 0 && m[1] > start && m[1] <= end) write(mark_at(s, m[0]), m[1] - keep, m[1]);
    }
  }
  for (int run = blockIdx.z * kConvRun; run < count; run += gridDim.z * kConvRun) {
    float before[kMostKernel];
#pragma unroll
    for (int k = 0; k < kMostKernel; k++) before[k] = run == 0 ? past[k] : k < keep ? input(run - keep + k) : 0.0f;
    for (int t = run; t < min(count, run + kConvRun); t++) {
      float now = input(t), sum = 0.0f;
#pragma unroll
      for (int k = 0; k < kMostKernel; k++) sum = k < keep ? fmaf(w[k], before[k], sum) : k == keep ? fmaf(w[k], now, sum) : sum;
      a.y[(size_t)(first + t) * s.cols + c] = sum / (1.0f + expf(-sum));
#pragma unroll
      for (int k = 0; k < kMostKernel - 1; k++) before[k] = k + 1 < keep ? before[k + 1] : k + 1 == keep ? now : before[k];
    }
  }
}

KERNEL(conv_f32, ConvArgs, 256) { conv<kF32>(a); }
KERNEL(conv_bf16, ConvArgs, 256) { conv<kBF16>(a); }
KERNEL(conv_f16, ConvArgs, 256) { conv<kF16>(a); }

struct DeltaArgs {
  States states;
  const float *qkv;      // [T, 2·key_heads·key_dim + value_heads·value_dim]
  const float *ba;       // [T, 2·value_heads]
  const float *a_log, *bias;  // [value_heads]
  float *y;              // [T, value_heads·value_dim]
  const int *first, *positions;
  const int *samples;    // [sample_count] token rows whose states are stored too, with several copies
  float *work;           // [T, value_heads, 2·kChunk], for the chunked kernels
  int key_heads, value_heads, key_dim, value_dim;
  int sample_count;
  int least;  // sequences with at least so many tokens in the step are computed in chunks, others token by token; 0: all token by token
  int seqs, pad;
};

constexpr int kKeyDim = 128;  // the largest key dimension

constexpr float kShortest = 1e-6f;  // is added to the square of a length

// inverse_length returns the factor that gives a vector length one; all lanes of the warp get it.
DEVICE float inverse_length(const float *x, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x & 31; i < n; i += 32) sum = fmaf(x[i], x[i], sum);
  return rsqrtf(warp_sum(sum) + kShortest);
}

DEVICE bool by_chunks(const DeltaArgs &a, int tokens) { return a.least > 0 && tokens >= a.least; }

// decay_of returns the logarithm of a state's decay at a token.
DEVICE float decay_of(const DeltaArgs &a, int token, int h) {
  float g = a.ba[(size_t)token * 2 * a.value_heads + a.value_heads + h] + a.bias[h];
  return -expf(a.a_log[h]) * (g > 20.0f ? g : log1pf(expf(g)));
}
DEVICE float beta_of(const DeltaArgs &a, int token, int h) { return 1.0f / (1.0f + expf(-a.ba[(size_t)token * 2 * a.value_heads + h])); }

// state_after returns the address of a head's state after a position, state_before that of the
// state that a step begins with; null: zeros.
DEVICE float *state_after(const DeltaArgs &a, int seq, int position, size_t offset) {
  const States &s = a.states;
  return (float *)(state_of(s, seq) + s.input_bytes + position % s.copies * s.matrix_bytes) + offset;
}
DEVICE const float *state_before(const DeltaArgs &a, int seq, int start, size_t offset) {
  unsigned char *begin = start_snapshot(a.states, seq);
  if (begin) return (const float *)(begin + a.states.input_bytes) + offset;
  return start > 0 ? state_after(a, seq, start - 1, offset) : nullptr;
}
// is_sampled reports whether a token's state is stored because the token is sampled.
DEVICE bool is_sampled(const DeltaArgs &a, int token) {
  for (int i = 0; a.states.copies > 1 && i < a.sample_count; i++)
    if (a.samples[i] == token) return true;
  return false;
}

// sampled_among returns which of the 32 tokens from `token` on are sampled, if a sequence has several copies of its state.
// All lanes of a warp call it.
DEVICE unsigned sampled_among(const DeltaArgs &a, int token) {
  if (a.states.copies == 1) return 0;
  unsigned found = 0;
  for (int i = threadIdx.x & 31; i < a.sample_count; i += 32)
    if (unsigned at = unsigned(a.samples[i] - token); at < 32) found |= 1u << at;
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) found |= __shfl_xor_sync(kAllLanes, found, o);
  return found;
}

// sum_of_rows adds over the lanes that share columns of a state in step_tokens.
DEVICE float sum_of_rows(float v) {
#pragma unroll
  for (int o = 4; o < 32; o <<= 1) v += __shfl_xor_sync(kAllLanes, v, o);
  return v;
}

// step_tokens walks along a sequence's tokens. A warp has 16 columns of a head's state in registers: lane l has columns
// 4·(l%4) to 4·(l%4)+3 of rows 32·i + 4·(l/4) + j. So it waits for no other warp, and each 64 bytes of a state are read and
// written once. kWhole: keys and values of 128, with addresses of 16 bytes.
template <bool kWhole>
DEVICE void step_tokens(const DeltaArgs &a) {
  const States &s = a.states;
  int h = blockIdx.y, seq = blockIdx.z, lane = threadIdx.x & 31, row = lane / 4 * 4;
  int column = blockIdx.x * 64 + threadIdx.x / 32 * 16 + lane % 4 * 4, n = kWhole ? kKeyDim : a.key_dim, d = kWhole ? 128 : a.value_dim;
  int first = a.first[seq], last = a.first[seq + 1];
  if (first == last || by_chunks(a, last - first)) return;
  int start = a.positions[first], keys = a.key_heads * n, key_head = h / (a.value_heads / a.key_heads);
  size_t in = size_t(2) * keys + size_t(a.value_heads) * d, offset = size_t(h) * n * d;
  // four reads numbers at, at+1, … of n; those from n on are zeros.
  auto four = [](const float *x, int at, int n) {
    if (kWhole) return *(const float4 *)(x + at);
    return make_float4(at < n ? x[at] : 0.0f, at + 1 < n ? x[at + 1] : 0.0f, at + 2 < n ? x[at + 2] : 0.0f, at + 3 < n ? x[at + 3] : 0.0f);
  };
  auto put = [](float *to, float4 v, int at, int n) {
    if (kWhole) {
      *(float4 *)(to + at) = v;
      return;
    }
    if (at < n) to[at] = v.x;
    if (at + 1 < n) to[at + 1] = v.y;
    if (at + 2 < n) to[at + 2] = v.z;
    if (at + 3 < n) to[at + 3] = v.w;
  };
  const float *from = state_before(a, seq, start, offset);
  float4 state[kKeyDim / 8];
#pragma unroll
  for (int i = 0; i < kKeyDim / 8; i++) {
    int r = i / 4 * 32 + row + i % 4;
    state[i] = from && r < n ? four(from + r * d, column, d) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  auto keep = [&](float *to) {
#pragma unroll
    for (int i = 0; i < kKeyDim / 8; i++)
      if (int r = i / 4 * 32 + row + i % 4; r < n) put(to + r * d, state[i], column, d);
  };
  for (int run = first; run < last; run += 32) {
    unsigned sampled = sampled_among(a, run);
    for (int t = run; t < min(last, run + 32); t++) {
      const float *x = a.qkv + t * in;
      float4 k[kKeyDim / 32], q[kKeyDim / 32], v = four(x + 2 * keys + size_t(h) * d, column, d);
      float ik = 0.0f, iq = 0.0f;
#pragma unroll
      for (int i = 0; i < kKeyDim / 32; i++) {
        q[i] = four(x + key_head * n, 32 * i + row, n);
        k[i] = four(x + keys + key_head * n, 32 * i + row, n);
        ik = fmaf(k[i].x, k[i].x, fmaf(k[i].y, k[i].y, fmaf(k[i].z, k[i].z, fmaf(k[i].w, k[i].w, ik))));
        iq = fmaf(q[i].x, q[i].x, fmaf(q[i].y, q[i].y, fmaf(q[i].z, q[i].z, fmaf(q[i].w, q[i].w, iq))));
      }
      ik = rsqrtf(sum_of_rows(ik) + kShortest);
      iq = rsqrtf((sum_of_rows(iq) + kShortest) * float(n));
      float e = expf(decay_of(a, t, h)), beta = beta_of(a, t, h);
      float4 seen = make_float4(0.0f, 0.0f, 0.0f, 0.0f), y = seen;
#pragma unroll
      for (int i = 0; i < kKeyDim / 8; i++) {
        float m = (&k[i / 4].x)[i % 4];
        seen.x = fmaf(state[i].x, m, seen.x);
        seen.y = fmaf(state[i].y, m, seen.y);
        seen.z = fmaf(state[i].z, m, seen.z);
        seen.w = fmaf(state[i].w, m, seen.w);
      }
      float behind = -e * ik, write = beta * ik;  // of a key as it is, which is not of length one
      float4 delta;
      delta.x = write * fmaf(behind, sum_of_rows(seen.x), v.x);
      delta.y = write * fmaf(behind, sum_of_rows(seen.y), v.y);
      delta.z = write * fmaf(behind, sum_of_rows(seen.z), v.z);
      delta.w = write * fmaf(behind, sum_of_rows(seen.w), v.w);
#pragma unroll
      for (int i = 0; i < kKeyDim / 8; i++) {
        float m = (&k[i / 4].x)[i % 4], by = (&q[i / 4].x)[i % 4];
        state[i].x = fmaf(m, delta.x, e * state[i].x);
        state[i].y = fmaf(m, delta.y, e * state[i].y);
        state[i].z = fmaf(m, delta.z, e * state[i].z);
        state[i].w = fmaf(m, delta.w, e * state[i].w);
        y.x = fmaf(state[i].x, by, y.x);
        y.y = fmaf(state[i].y, by, y.y);
        y.z = fmaf(state[i].z, by, y.z);
        y.w = fmaf(state[i].w, by, y.w);
      }
      y = make_float4(iq * sum_of_rows(y.x), iq * sum_of_rows(y.y), iq * sum_of_rows(y.z), iq * sum_of_rows(y.w));
      if (row == 0) put(a.y + (size_t(t) * a.value_heads + h) * d, y, column, d);
      int position = start + t - first;
      if (t == last - 1 || (sampled >> (t - run) & 1)) keep(state_after(a, seq, position, offset));
      if (unsigned char *mark = snapshot_after(s, seq, position + 1)) keep((float *)(mark + s.input_bytes) + offset);
    }
  }
}

// delta and delta_128: grid.x is blocks of 64 value columns, grid.y the value heads, grid.z the sequences; 128 threads.
// delta_128 is for keys and values of 128.
KERNEL(delta, DeltaArgs, 128) { step_tokens<false>(a); }
KERNEL_OF(delta_128, DeltaArgs, 128, 3) { step_tokens<true>(a); }

// Prompts are computed in chunks (Yang et al., Parallelizing Linear Transformers with the Delta
// Rule). In a chunk, G are the sums of the decays' logarithms, A[i][j] =
// β_i·e^(G_i−G_j)·k_i·k_j below the diagonal, and S the state before it. What the tokens write
// is Δ = (I+A)⁻¹·diag(β)·(V − diag(e^G)·K·S). Their outputs are diag(e^G)·Q·S + P·Δ with
// P[i][j] = e^(G_i−G_j)·q_i·k_j up to the diagonal. The state after token n is e^G_n·S + Σ_j≤n
// e^(G_n−G_j)·k_j·Δ_jᵀ. delta_chunks computes T = (I+A)⁻¹·diag(β) and P of all chunks at once;
// delta_prompt walks along the chunks. All of it is float32.

constexpr int kChunk = 64;              // tokens of a chunk; chunks begin at multiples of it
constexpr int kRow = kKeyDim + 4;       // strides in shared memory
constexpr int kInverse = kChunk + 16, kLower = kChunk + 4, kColumns = 36;

struct Chunk {
  int first, count;  // token rows
};
DEVICE Chunk chunk_of(const DeltaArgs &a, int seq, int i) {
  int first = a.first[seq], last = a.first[seq + 1], start = a.positions[first];
  int from = max(first, first + (start / kChunk + i) * kChunk - start), to = first + (start / kChunk + i + 1) * kChunk - start;
  return {from, min(to, last) - from};
}
DEVICE int chunks_of(const DeltaArgs &a, int seq) {
  int n = a.first[seq + 1] - a.first[seq];
  if (n == 0 || !by_chunks(a, n)) return 0;
  int start = a.positions[a.first[seq]];
  return (start + n - 1) / kChunk - start / kChunk + 1;
}

// load_rows loads a chunk's queries or keys, scaled to length `scale`, and zeros after them.
DEVICE void load_rows(const DeltaArgs &a, Chunk c, int column, float scale, float *to) {
  int lane = threadIdx.x & 31, n = a.key_dim;
  size_t in = size_t(2) * a.key_heads * n + size_t(a.value_heads) * a.value_dim;
  for (int r = threadIdx.x >> 5; r < kChunk; r += blockDim.x >> 5) {
    const float *x = a.qkv + (c.first + r) * in + column;
    float inverse = r < c.count ? inverse_length(x, n) * scale : 0.0f;
    for (int i = lane; i < kKeyDim; i += 32) to[r * kRow + i] = r < c.count && i < n ? x[i] * inverse : 0.0f;
  }
}

// load_decays loads the sums of a chunk's decays; a barrier must come before they are read.
DEVICE void load_decays(const DeltaArgs &a, Chunk c, int h, float *single, float *sums) {
  for (int r = threadIdx.x; r < kChunk; r += blockDim.x) single[r] = r < c.count ? decay_of(a, c.first + r, h) : 0.0f;
  __syncthreads();
  for (int r = threadIdx.x; r < kChunk; r += blockDim.x) {
    float sum = 0.0f;
    for (int j = 0; j <= r; j++) sum += single[j];
    sums[r] = sum;
  }
}

// delta_chunks: grid.x is the chunks, grid.y the value heads; 128 threads.
KERNEL(delta_chunks, DeltaArgs, 128) {
  DYNAMIC_SHARED(memory);
  __shared__ float single[kChunk], sums[kChunk], beta[kChunk];
  float *keys = (float *)memory, *queries = keys + kChunk * kRow, *lower = queries + kChunk * kRow, *inverse = queries;
  int h = blockIdx.y, seq, i, n = a.key_dim, key_head = h / (a.value_heads / a.key_heads);
  if (!part_of(a.seqs, blockIdx.x, &seq, &i, [&](int s) { return chunks_of(a, s); })) return;
  Chunk c = chunk_of(a, seq, i);
  load_rows(a, c, key_head * n, 1.0f / sqrtf(float(n)), queries);
  load_rows(a, c, (a.key_heads + key_head) * n, 1.0f, keys);
  load_decays(a, c, h, single, sums);
  for (int r = threadIdx.x; r < kChunk; r += blockDim.x) beta[r] = r < c.count ? beta_of(a, c.first + r, h) : 0.0f;
  __syncthreads();
  auto work = [&](int r) { return a.work + (size_t(c.first + r) * a.value_heads + h) * 2 * kChunk; };
  int ty = threadIdx.x / 8, tx = threadIdx.x % 8;  // rows ty + 16·y, columns tx + 8·x
  float kk[4][8] = {}, qk[4][8] = {};
  for (int d = 0; d < kKeyDim && d < n; d += 4) {
    float4 k[4], q[4];
#pragma unroll
    for (int y = 0; y < 4; y++) {
      k[y] = *(const float4 *)(keys + (ty + 16 * y) * kRow + d);
      q[y] = *(const float4 *)(queries + (ty + 16 * y) * kRow + d);
    }
#pragma unroll
    for (int x = 0; x < 8; x++) {
      float4 o = *(const float4 *)(keys + (tx + 8 * x) * kRow + d);
#pragma unroll
      for (int y = 0; y < 4; y++) {
        kk[y][x] = fmaf(k[y].w, o.w, fmaf(k[y].z, o.z, fmaf(k[y].y, o.y, fmaf(k[y].x, o.x, kk[y][x]))));
        qk[y][x] = fmaf(q[y].w, o.w, fmaf(q[y].z, o.z, fmaf(q[y].y, o.y, fmaf(q[y].x, o.x, qk[y][x]))));
      }
    }
  }
#pragma unroll
  for (int y = 0; y < 4; y++)
#pragma unroll
    for (int x = 0; x < 8; x++) {
      int row = ty + 16 * y, col = tx + 8 * x;
      float decayed = col <= row ? expf(sums[row] - sums[col]) : 0.0f;
      lower[row * kLower + col] = col < row ? beta[row] * decayed * kk[y][x] : 0.0f;
      if (row < c.count) work(row)[kChunk + col] = decayed * qk[y][x];
    }
  __syncthreads();  // all threads are done with the queries: the inverse replaces them
  int col = threadIdx.x / 2, half = threadIdx.x % 2;  // two lanes share a column
  for (int r = 0; r < kChunk; r++) {
    float sum = 0.0f;
    for (int j = half; j < r; j += 2) sum = fmaf(lower[r * kLower + j], inverse[j * kInverse + col], sum);
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    if (half == 0) inverse[r * kInverse + col] = (r == col ? beta[r] : 0.0f) - sum;
    __syncwarp();
  }
  __syncthreads();
  for (int e = threadIdx.x; e < c.count * kChunk; e += blockDim.x) work(e / kChunk)[e % kChunk] = inverse[e / kChunk * kInverse + e % kChunk];
}

// times adds rows ty + 16·i of left, over depth, times four columns of right.
DEVICE void times(float (&sum)[4][4], const float *left, int stride, const float *right, int depth) {
  int ty = threadIdx.x / 8, tx = threadIdx.x % 8;
  for (int d = 0; d < depth; d += 4) {
    float4 l[4], r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      l[i] = *(const float4 *)(left + (ty + 16 * i) * stride + d);
      r[i] = *(const float4 *)(right + (d + i) * kColumns + 4 * tx);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *m = &l[i].x;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        sum[i][0] = fmaf(m[e], r[e].x, sum[i][0]);
        sum[i][1] = fmaf(m[e], r[e].y, sum[i][1]);
        sum[i][2] = fmaf(m[e], r[e].z, sum[i][2]);
        sum[i][3] = fmaf(m[e], r[e].w, sum[i][3]);
      }
    }
  }
}

// delta_prompt: grid.x is blocks of 32 value columns, grid.y the value heads, grid.z the
// sequences; 128 threads.
KERNEL(delta_prompt, DeltaArgs, 128) {
  DYNAMIC_SHARED(memory);
  __shared__ float single[kChunk], sums[kChunk];
  __shared__ int wanted[kChunk];  // 1: the state is stored, 2: in a snapshot
  const States &s = a.states;
  float *rows = (float *)memory, *state = rows + kChunk * kRow, *lower = state + kKeyDim * kColumns;
  float *values = lower + kChunk * kLower, *writes = values + kChunk * kColumns;
  int h = blockIdx.y, seq = blockIdx.z, n = a.key_dim, d = a.value_dim, chunks = chunks_of(a, seq);
  if (chunks == 0) return;
  int first = a.first[seq], last = a.first[seq + 1], start = a.positions[first], key_head = h / (a.value_heads / a.key_heads);
  int keys = a.key_heads * n, column0 = blockIdx.x * 32, ty = threadIdx.x / 8, column = 4 * (threadIdx.x % 8);
  size_t in = size_t(2) * keys + size_t(a.value_heads) * d, offset = size_t(h) * n * d;
  const float *from = state_before(a, seq, start, offset);
  for (int e = threadIdx.x; e < kKeyDim * 32; e += blockDim.x) {
    int r = e / 32, col = e % 32;
    state[r * kColumns + col] = from && r < n && column0 + col < d ? from[size_t(r) * d + column0 + col] : 0.0f;
  }
  auto load_work = [&](Chunk c, int which) {
    for (int e = threadIdx.x; e < kChunk * kChunk; e += blockDim.x) {
      int r = e / kChunk;
      lower[r * kLower + e % kChunk] = r < c.count ? a.work[(size_t(c.first + r) * a.value_heads + h) * 2 * kChunk + which * kChunk + e % kChunk] : 0.0f;
    }
  };
  for (int i = 0; i < chunks; i++) {
    Chunk c = chunk_of(a, seq, i);
    int position0 = start + c.first - first;
    __syncthreads();  // all threads are done with the previous chunk
    load_rows(a, c, key_head * n, 1.0f / sqrtf(float(n)), rows);
    load_work(c, 0);
    load_decays(a, c, h, single, sums);
    for (int r = threadIdx.x; r < c.count; r += blockDim.x)
      wanted[r] = (c.first + r == last - 1 || is_sampled(a, c.first + r)) + 2 * (snapshot_after(s, seq, position0 + r + 1) != nullptr);
    __syncthreads();
    float y[4][4] = {}, sum[4][4] = {}, written[4][4] = {};
    times(y, rows, kRow, state, min(kKeyDim, (n + 3) / 4 * 4));
    __syncthreads();
    load_rows(a, c, keys + key_head * n, 1.0f, rows);
    __syncthreads();
    times(sum, rows, kRow, state, min(kKeyDim, (n + 3) / 4 * 4));
#pragma unroll
    for (int r = 0; r < 4; r++) {
      int row = ty + 16 * r;
      float e = expf(sums[row]);
#pragma unroll
      for (int x = 0; x < 4; x++) {
        bool there = row < c.count && column0 + column + x < d;
        float v = there ? a.qkv[(c.first + row) * in + 2 * keys + size_t(h) * d + column0 + column + x] : 0.0f;
        values[row * kColumns + column + x] = v - e * sum[r][x];
        y[r][x] *= e;
      }
    }
    __syncthreads();
    times(written, lower, kLower, values, kChunk);
#pragma unroll
    for (int r = 0; r < 4; r++) *(float4 *)(writes + (ty + 16 * r) * kColumns + column) = make_float4(written[r][0], written[r][1], written[r][2], written[r][3]);
    __syncthreads();
    load_work(c, 1);
    __syncthreads();
    times(y, lower, kLower, writes, kChunk);
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int x = 0; x < 4; x++) {
        int row = ty + 16 * r, col = column0 + column + x;
        if (row < c.count && col < d) a.y[(size_t(c.first + row) * a.value_heads + h) * d + col] = y[r][x];
      }
    // The states after tokens: those that are wanted, then that of the chunk's
    // last.
    for (int t = 0; t < c.count; t++) {
      if (wanted[t] == 0 && t < c.count - 1) continue;
      float behind[8][4];
#pragma unroll
      for (int r = 0; r < 8; r++)
#pragma unroll
        for (int x = 0; x < 4; x++) behind[r][x] = expf(sums[t]) * state[(ty + 16 * r) * kColumns + column + x];
      for (int j = 0; j <= t; j++) {
        float e = expf(sums[t] - sums[j]);
        float4 v = *(const float4 *)(writes + j * kColumns + column);
#pragma unroll
        for (int r = 0; r < 8; r++) {
          float k = rows[j * kRow + ty + 16 * r] * e;
          behind[r][0] = fmaf(k, v.x, behind[r][0]);
          behind[r][1] = fmaf(k, v.y, behind[r][1]);
          behind[r][2] = fmaf(k, v.z, behind[r][2]);
          behind[r][3] = fmaf(k, v.w, behind[r][3]);
        }
      }
      auto keep = [&](float *to) {
#pragma unroll
        for (int r = 0; r < 8; r++)
#pragma unroll
          for (int x = 0; x < 4; x++)
            if (ty + 16 * r < n && column0 + column + x < d) to[size_t(ty + 16 * r) * d + column0 + column + x] = behind[r][x];
      };
      if (wanted[t] & 1) keep(state_after(a, seq, position0 + t, offset));
      if (wanted[t] & 2) keep((float *)(snapshot_after(s, seq, position0 + t + 1) + s.input_bytes) + offset);
      if (t == c.count - 1) {
#pragma unroll
        for (int r = 0; r < 8; r++)
          *(float4 *)(state + (ty + 16 * r) * kColumns + column) = make_float4(behind[r][0], behind[r][1], behind[r][2], behind[r][3]);
      }
    }
  }
}
