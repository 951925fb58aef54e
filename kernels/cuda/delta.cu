// Gated delta nets: the causal convolution before them and the recurrence, with states and
// state snapshots in pages (engine/backend: Conv, DeltaNet).
#include "mma.cuh"
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
  unsigned char *work;   // for the chunked kernels: see triangles_of
  int key_heads, value_heads, key_dim, value_dim;
  int sample_count;
  int least;  // sequences with at least so many tokens in the step are computed in chunks, others token by token; 0: all token by token
  int seqs, pad;
};

constexpr int kKeyDim = 128;  // the largest key dimension

constexpr float kShortest = 1e-6f;  // is added to the square of a length

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
// delta_prompt walks along the chunks.
//
// The matrix units multiply. Each operand is two fp16 numbers, which have 22 bits together, and a product is three of
// theirs; sums are float32. Keys and queries of length one, A, T and P are at most 1 and are taken times 64, so that
// the lower numbers are no subnormal ones. States and values have a unit for each column.

constexpr int kChunk = 64;  // tokens of a chunk; chunks begin at multiples of it
constexpr float kTimes = 64.0f, kOver = 1.0f / 64.0f;
constexpr int kKeyBytes = 2 * kKeyDim, kTriangleBytes = 2 * kChunk;  // of a row of 16-bit numbers in shared memory
constexpr int kKeys = kChunk * kKeyBytes, kTriangle = kChunk * kTriangleBytes;

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

// What delta_chunks passes on is in a row for each token. triangles_of: for each value head, Tᵀ and P, kChunk numbers each, of which
// those from the block of 16 with the diagonal on (Tᵀ), or up to it (P), are there. keys_of: for each key head the key and the
// query, kKeyDim numbers each. decays_of: G by value head. Of numbers in two parts the upper fp16 numbers come first.
DEVICE int row_bytes(const DeltaArgs &a) { return a.value_heads * 4 * kTriangleBytes + a.key_heads * 4 * kKeyBytes + ceil_div(a.value_heads, 4) * 16; }
DEVICE unsigned char *triangles_of(const DeltaArgs &a, int token, int h) { return a.work + size_t(token) * row_bytes(a) + h * 4 * kTriangleBytes; }
DEVICE unsigned char *keys_of(const DeltaArgs &a, int token, int key_head) { return triangles_of(a, token, a.value_heads) + key_head * 4 * kKeyBytes; }
DEVICE float *decays_of(const DeltaArgs &a, int token) { return (float *)keys_of(a, token, a.key_heads); }

// Halves are two numbers, each the sum of an upper and a lower fp16 number.
struct Halves {
  uint32_t up, low;
};
DEVICE Halves halves_of(float x, float y) {
  uint32_t up = to_f16x2(x, y);
  return {up, to_f16x2(x - from_f16(uint16_t(up)), y - from_f16(uint16_t(up >> 16)))};
}

// Left is the left operand of a product, 16 rows by 16 columns, Right the right one for 16 columns of the result.
struct Left {
  uint32_t up[4], low[4];
};
struct Right {
  uint32_t up[4], low[4];
};
// left_of makes an operand of the sums of two products: their columns become its columns.
DEVICE Left left_of(const float (&x)[4], const float (&y)[4], float times) {
  Left l;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float *v = (i < 2 ? x : y) + 2 * (i & 1);
    Halves h = halves_of(v[0] * times, v[1] * times);
    l.up[i] = h.up;
    l.low[i] = h.low;
  }
  return l;
}
// multiply adds left · right to the sums of columns 0 to 7 and 8 to 15.
DEVICE void multiply(float (&x)[4], float (&y)[4], const Left &l, const Right &r) {
  multiply_f16(x, l.low, r.up[0], r.up[1]);
  multiply_f16(y, l.low, r.up[2], r.up[3]);
  multiply_f16(x, l.up, r.low[0], r.low[1]);
  multiply_f16(y, l.up, r.low[2], r.low[3]);
  multiply_f16(x, l.up, r.up[0], r.up[1]);
  multiply_f16(y, l.up, r.up[2], r.up[3]);
}

// Rows in shared memory are in pieces of 16 bytes, whose order differs from row to row, so that neither rows nor columns of
// pieces meet in a bank.
DEVICE unsigned char *piece(unsigned char *matrix, int bytes, int row, int n) { return matrix + row * bytes + ((n ^ (row & 7)) << 4); }

// load_left loads rows from `row` on and columns from 16·k on, load_right the matrix whose rows are columns of the result,
// load_right_rows the one whose rows are those of the product. The lower numbers lie `apart` bytes behind the upper.
DEVICE Left load_left(unsigned char *matrix, int apart, int bytes, int row, int k) {
  int lane = threadIdx.x & 31;
  Left l;
  unsigned char *at = piece(matrix, bytes, row + (lane & 15), 2 * k + lane / 16);
  load_matrix(l.up, at);
  load_matrix(l.low, at + apart);
  return l;
}
DEVICE Right load_right(unsigned char *matrix, int apart, int bytes, int row, int k) {
  int lane = threadIdx.x & 31;
  Right r;
  unsigned char *at = piece(matrix, bytes, row + (lane & 7) + lane / 16 * 8, 2 * k + (lane >> 3 & 1));
  load_matrix(r.up, at);
  load_matrix(r.low, at + apart);
  return r;
}
DEVICE Right load_right_rows(unsigned char *matrix, int apart, int bytes, int row, int column) {
  int lane = threadIdx.x & 31;
  Right r;
  unsigned char *at = piece(matrix, bytes, row + (lane & 15), column / 8 + lane / 16);
  load_matrix_transposed(r.up, at);
  load_matrix_transposed(r.low, at + apart);
  return r;
}

// load_rows loads a chunk's queries or keys, of length one and times kTimes, and zeros after them, to shared memory and to
// the rows that delta_prompt reads, `part` bytes from their begin. Eight lanes load a row.
DEVICE void load_rows(const DeltaArgs &a, Chunk c, int key_head, int column, unsigned char *to, int part) {
  int n = a.key_dim, eighth = threadIdx.x & 7;
  size_t in = size_t(2) * a.key_heads * n + size_t(a.value_heads) * a.value_dim;
  bool whole = n == kKeyDim && in % 4 == 0;
  for (int r = threadIdx.x >> 3; r < kChunk; r += blockDim.x >> 3) {
    const float *x = a.qkv + (c.first + r) * in + column;
    float v[2][8], sum = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int from = 64 * half + 8 * eighth;
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (whole && r < c.count) {
          four = *(const float4 *)(x + from + i);
        } else if (r < c.count) {
          four.x = from + i < n ? x[from + i] : 0.0f;
          four.y = from + i + 1 < n ? x[from + i + 1] : 0.0f;
          four.z = from + i + 2 < n ? x[from + i + 2] : 0.0f;
          four.w = from + i + 3 < n ? x[from + i + 3] : 0.0f;
        }
        v[half][i] = four.x;
        v[half][i + 1] = four.y;
        v[half][i + 2] = four.z;
        v[half][i + 3] = four.w;
        sum = fmaf(four.x, four.x, fmaf(four.y, four.y, fmaf(four.z, four.z, fmaf(four.w, four.w, sum))));
      }
    }
#pragma unroll
    for (int o = 1; o < 8; o <<= 1) sum += __shfl_xor_sync(kAllLanes, sum, o);
    float inverse = rsqrtf(sum + kShortest) * kTimes;
    unsigned char *row = keys_of(a, c.first + r, key_head) + part;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      Halves h[4];
#pragma unroll
      for (int i = 0; i < 4; i++) h[i] = halves_of(v[half][2 * i] * inverse, v[half][2 * i + 1] * inverse);
      uint4 up = make_uint4(h[0].up, h[1].up, h[2].up, h[3].up), low = make_uint4(h[0].low, h[1].low, h[2].low, h[3].low);
      unsigned char *at = piece(to, kKeyBytes, r, 8 * half + eighth);
      *(uint4 *)at = up;
      *(uint4 *)(at + kKeys) = low;
      if (r < c.count) {
        *(uint4 *)(row + 16 * (8 * half + eighth)) = up;
        *(uint4 *)(row + kKeyBytes + 16 * (8 * half + eighth)) = low;
      }
    }
  }
}

// load_decays computes a chunk's sums of decays and its β for one head. All lanes of a warp call it.
DEVICE void load_decays(const DeltaArgs &a, Chunk c, int h, float *sums, float *beta) {
  int lane = threadIdx.x & 31, r = 2 * lane;
  float single = r < c.count ? decay_of(a, c.first + r, h) : 0.0f, both = single + (r + 1 < c.count ? decay_of(a, c.first + r + 1, h) : 0.0f);
  float sum = both;
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) {
    float v = __shfl_up_sync(kAllLanes, sum, o);
    if (lane >= o) sum += v;
  }
  float before = __shfl_up_sync(kAllLanes, sum, 1);
  sums[r] = (lane > 0 ? before : 0.0f) + single;
  sums[r + 1] = sum;
#pragma unroll
  for (int i = r; i < r + 2; i++) {
    beta[i] = i < c.count ? beta_of(a, c.first + i, h) : 0.0f;
    if (i < c.count) decays_of(a, c.first + i)[h] = sums[i];
  }
}

constexpr int kAtOnce = 4;                // heads whose decays are computed at once, by a warp each
constexpr int kBlock = 16, kSpan = 20;    // rows of a block of a triangle, and their stride
constexpr int kSolved = 2 * kTriangle;    // where the blocks on the diagonal are in shared memory

// delta_chunks: grid.x is the chunks, grid.y the key heads; 128 threads. Warp w has rows 16·w to 16·w+15 of A and P. It
// inverts the block on the diagonal of I+A in float32, and then computes columns 16·w to 16·w+15 of T, block by block: T_w =
// D_w·β and T_b = −D_b·Σ A_bc·T_c, w ≤ c < b. All is transposed: sums of a product are the left operand of the next one.
KERNEL(delta_chunks, DeltaArgs, 128) {
  DYNAMIC_SHARED(memory);
  __shared__ float sums[kAtOnce][kChunk], beta[kAtOnce][kChunk];
  unsigned char *keys = memory, *queries = memory + 2 * kKeys, *lower = memory;  // A replaces the keys
  int key_head = blockIdx.y, seq, i, n = a.key_dim, group = a.value_heads / a.key_heads;
  int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, two = lane % 4 * 2;
  if (!part_of(a.seqs, blockIdx.x, &seq, &i, [&](int s) { return chunks_of(a, s); })) return;
  Chunk c = chunk_of(a, seq, i);
  load_rows(a, c, key_head, (a.key_heads + key_head) * n, keys, 0);
  load_rows(a, c, key_head, key_head * n, queries, 2 * kKeyBytes);
  __syncthreads();
  float kk[8][4] = {}, qk[8][4] = {};
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; k++) {
    Left key = load_left(keys, kKeys, kKeyBytes, 16 * warp, k), query = load_left(queries, kKeys, kKeyBytes, 16 * warp, k);
#pragma unroll
    for (int b = 0; b < 4; b++)
      if (b <= warp) {
        Right r = load_right(keys, kKeys, kKeyBytes, 16 * b, k);
        multiply(kk[2 * b], kk[2 * b + 1], key, r);
        multiply(qk[2 * b], qk[2 * b + 1], query, r);
      }
  }
  float *block = (float *)(memory + kSolved) + warp * kBlock * kSpan;
  for (int of = 0; of < group; of++) {
    int h = key_head * group + of, at = of % kAtOnce;
    __syncthreads();  // all threads are done with the keys, or with the previous head
    if (at == 0) {
      if (of + warp < group) load_decays(a, c, h + warp, sums[warp], beta[warp]);
      __syncthreads();
    }
#pragma unroll
    for (int x = 0; x < 8; x++)
      if (x / 2 <= warp) {
#pragma unroll
        for (int low = 0; low < 2; low++) {
          int row = 16 * warp + g + 8 * low, col = 8 * x + two;
          float first = col <= row ? expf(sums[at][row] - sums[at][col]) : 0.0f, second = col < row ? expf(sums[at][row] - sums[at][col + 1]) : 0.0f;
          if (row < c.count) {
            Halves p = halves_of(first * qk[x][2 * low] * kOver, second * qk[x][2 * low + 1] * kOver);
            unsigned char *to = triangles_of(a, c.first + row, h) + 2 * kTriangleBytes + 2 * col;
            *(uint32_t *)to = p.up;
            *(uint32_t *)(to + kTriangleBytes) = p.low;
          }
          first *= beta[at][row] * kOver * kk[x][2 * low];
          second *= beta[at][row] * kOver * kk[x][2 * low + 1];
          if (x / 2 < warp) {
            Halves l = halves_of(first, second);
            unsigned char *to = piece(lower, kTriangleBytes, row, x) + 2 * two;
            *(uint32_t *)to = l.up;
            *(uint32_t *)(to + kTriangle) = l.low;
          } else {
            block[(row % 16) * kSpan + col % 16] = first * kOver;
            block[(row % 16) * kSpan + col % 16 + 1] = second * kOver;
          }
        }
      }
    __syncwarp();
    float solved[kBlock];  // a column of the inverse; both halves of the warp compute it
#pragma unroll
    for (int r = 0; r < kBlock; r++) {
      float sum = lane % 16 == r ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < r; j += 4) {
        float4 l = *(const float4 *)(block + r * kSpan + j);  // columns from r on are multiplied by zeros
        sum = fmaf(-l.x, solved[j], sum);
        if (j + 1 < r) sum = fmaf(-l.y, solved[j + 1], sum);
        if (j + 2 < r) sum = fmaf(-l.z, solved[j + 2], sum);
        if (j + 3 < r) sum = fmaf(-l.w, solved[j + 3], sum);
      }
      solved[r] = sum;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kBlock; r++) {
      uint32_t half = halves_of(solved[r] * kTimes, 0.0f).up;
      if (lane >= 16) half = halves_of(solved[r] * kTimes, 0.0f).low;
      unsigned char *to = piece(lower, kTriangleBytes, 16 * warp + r, 2 * warp + lane % 16 / 8) + lane % 8 * 2;
      *(uint16_t *)(to + lane / 16 * kTriangle) = uint16_t(half);
      if (lane < 16) block[r * kSpan + lane] = solved[r];
    }
    __syncthreads();  // the blocks of all warps are there
    Left done[3];
#pragma unroll
    for (int b = 0; b < 4; b++)
      if (b >= warp) {
        float t[2][4] = {};  // times kTimes
        if (b == warp) {
#pragma unroll
          for (int x = 0; x < 2; x++)
#pragma unroll
            for (int y = 0; y < 4; y++) t[x][y] = kTimes * block[(8 * x + two + y % 2) * kSpan + g + y / 2 * 8] * beta[at][16 * warp + g + y / 2 * 8];
        } else {
          float sum[2][4] = {};
#pragma unroll
          for (int e = 0; e < b; e++)
            if (e >= warp) multiply(sum[0], sum[1], done[e], load_right(lower, kTriangle, kTriangleBytes, 16 * b, e));
          multiply(t[0], t[1], left_of(sum[0], sum[1], -kOver), load_right(lower, kTriangle, kTriangleBytes, 16 * b, b));
#pragma unroll
          for (int y = 0; y < 4; y++) {
            t[0][y] *= kOver;
            t[1][y] *= kOver;
          }
        }
        Left l = left_of(t[0], t[1], 1.0f);
        if (b < 3) done[b] = l;
#pragma unroll
        for (int y = 0; y < 4; y++) {
          int row = 16 * warp + g + y % 2 * 8;
          unsigned char *to = triangles_of(a, c.first + row, h) + 2 * (16 * b + y / 2 * 8 + two);
          if (row < c.count) {
            *(uint32_t *)to = l.up[y];
            *(uint32_t *)(to + kTriangleBytes) = l.low[y];
          }
        }
      }
  }
}

// copy_part copies a part of the rows of a chunk's tokens to shared memory, upper and lower numbers, and zeros after them.
// from is the part of the first token. It copies nothing of a chunk without tokens.
template <int kBytes>
DEVICE void copy_part(const DeltaArgs &a, unsigned char *to, Chunk c, const unsigned char *from) {
  constexpr int kPieces = 2 * kBytes / 16, kStep = 128 / kPieces;
  int r = threadIdx.x / kPieces, n = threadIdx.x % kPieces;
  to += n / (kPieces / 2) * kChunk * kBytes;
  from += 16 * n;
  if (c.count == 0) return;
#pragma unroll 4
  for (int e = 0; e < kChunk / kStep; e++, r += kStep)
    copy_async(piece(to, kBytes, r, n % (kPieces / 2)), from + size_t(min(r, c.count - 1)) * row_bytes(a), r < c.count ? 16 : 0);
}

// delta_prompt: grid.x is blocks of 64 value columns, grid.y the value heads, grid.z the sequences; 128 threads. A warp has
// 16 columns of the state in registers, transposed: sums of one product are the left operand of the next, and
// warps share what they read only.
KERNEL(delta_prompt, DeltaArgs, 128) {
  DYNAMIC_SHARED(memory);
  __shared__ float sums[kChunk];
  __shared__ int wanted[kChunk];  // 1: the state is stored, 2: in a snapshot
  const States &s = a.states;
  unsigned char *keys = memory, *queries = keys + 2 * kKeys, *inverse = queries + 2 * kKeys, *seen = inverse + 2 * kTriangle;
  int h = blockIdx.y, seq = blockIdx.z, n = a.key_dim, d = a.value_dim;
  if (chunks_of(a, seq) == 0) return;
  int lane = threadIdx.x & 31, g = lane / 4, two = lane % 4 * 2, column = blockIdx.x * 64 + threadIdx.x / 32 * 16 + g;
  int first = a.first[seq], last = a.first[seq + 1], start = a.positions[first], key_head = h / (a.value_heads / a.key_heads);
  size_t in = size_t(2) * a.key_heads * n + size_t(a.value_heads) * d, offset = size_t(h) * n * d;
  auto copy_keys = [&](Chunk c) {
    copy_part<kKeyBytes>(a, keys, c, keys_of(a, c.first, key_head));
    copy_commit();
  };
  auto copy_queries = [&](Chunk c) {
    copy_part<kKeyBytes>(a, queries, c, keys_of(a, c.first, key_head) + 2 * kKeyBytes);
    copy_commit();
  };
  auto copy_triangles = [&](Chunk c) {
    copy_part<kTriangleBytes>(a, inverse, c, triangles_of(a, c.first, h));
    copy_part<kTriangleBytes>(a, seen, c, triangles_of(a, c.first, h) + 2 * kTriangleBytes);
    copy_commit();
  };
  Chunk c = chunk_of(a, seq, 0);
  copy_queries(c);
  copy_triangles(c);
  copy_keys(c);
  // Element 2·z + e of sums 8·x is column + 8·z, and token or key 8·x + two + e. each visits those that are below n and d: row
  // r of a matrix, at its address.
  auto each = [&](auto *row, size_t stride, int n, auto visit) {
#pragma unroll
    for (int x = 0; x < kChunk / 8; x++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        bool there = 8 * x + two + e < n;
        if (there && column < d) visit(row[0], x, e);
        if (there && column + 8 < d) visit(row[8], x, 2 + e);
        row += e == 0 ? stride : 7 * stride;
      }
  };
  const float *from = state_before(a, seq, start, offset);
  float state[kKeyDim / 8][4] = {}, over[2] = {1.0f, 1.0f};  // the state over its units: powers of two
  if (from) {
    from += size_t(two) * d + column;
    each(from, d, n, [&](float v, int x, int y) { state[x][y] = v; });
    each(from + kChunk * d, d, n - kChunk, [&](float v, int x, int y) { state[kChunk / 8 + x][y] = v; });
  }
  auto power = [](int exponent) { return __uint_as_float(uint32_t(exponent) << 23); };
  auto unit = [&](int i) { return power(254 - int(__float_as_uint(over[i]) >> 23)); };  // 1/over
  // rescale changes the unit so that the largest number is 8 to 16, of which a chunk makes less than fp16 holds: at most
  // 1,300. It returns the factor. most: the largest number in the unit so far.
  auto rescale = [&](int i, float most) {
#pragma unroll
    for (int x = 0; x < kKeyDim / 8; x++) most = fmaxf(most, fmaxf(fabsf(state[x][2 * i]), fabsf(state[x][2 * i + 1])));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    int by = most > 0.0f ? 257 - int(__float_as_uint(most) >> 23) : 127;  // an exponent
    by = max(1, min(min(by, 253), 100 + int(__float_as_uint(over[i]) >> 23)));
    float factor = power(by);
    over[i] *= power(254 - by);
#pragma unroll
    for (int x = 0; x < kKeyDim / 8; x++) {
      state[x][2 * i] *= factor;
      state[x][2 * i + 1] *= factor;
    }
    return factor;
  };
  rescale(0, 0.0f);
  rescale(1, 0.0f);
  while (c.count > 0) {
    bool mine = int(threadIdx.x) < c.count;
    float decay = threadIdx.x < kChunk ? decays_of(a, c.first + min(int(threadIdx.x), c.count - 1))[h] : 0.0f;
    if (threadIdx.x < kChunk) wanted[threadIdx.x] = mine ? (c.first + int(threadIdx.x) == last - 1) + 2 * (snapshot_after(s, seq, start + c.first - first + int(threadIdx.x) + 1) != nullptr) : 0;
    float value[8][4] = {};
    each(a.qkv + (c.first + two) * in + 2 * a.key_heads * n + size_t(h) * d + column, in, c.count, [&](float v, int x, int y) { value[x][y] = v; });
    copy_wait<1>();
    __syncthreads();  // all but the keys are there
    if (s.copies > 1)
      for (int e = threadIdx.x; e < a.sample_count; e += blockDim.x)
        if (int t = a.samples[e] - c.first; t >= 0 && t < c.count) wanted[t] |= 1;
    if (threadIdx.x < kChunk) sums[threadIdx.x] = decay;
    float y[8][4] = {};  // times kTimes
    auto seen_by = [&](float (&sum)[8][4], unsigned char *rows) {
#pragma unroll
      for (int k = 0; k < kKeyDim / 16; k++) {
        Left l = left_of(state[2 * k], state[2 * k + 1], 1.0f);
#pragma unroll
        for (int b = 0; b < 4; b++) multiply(sum[2 * b], sum[2 * b + 1], l, load_right(rows, kKeys, kKeyBytes, 16 * b, k));
      }
    };
    seen_by(y, queries);
    copy_wait<0>();
    __syncthreads();  // the keys are there, and all threads are done with the queries
    Chunk next{c.first + c.count, min(kChunk, last - c.first - c.count)};
    copy_queries(next);
    float factor[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float most = 0.0f;
#pragma unroll
      for (int x = 0; x < 8; x++) most = fmaxf(most, fmaxf(fabsf(value[x][2 * e]), fabsf(value[x][2 * e + 1])));
      factor[e] = rescale(e, most * unit(e));
    }
    {
      float sum[8][4] = {};
      seen_by(sum, keys);
#pragma unroll
      for (int x = 0; x < 8; x++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float faded = expf(sums[8 * x + two + e]);
#pragma unroll
          for (int z = 0; z < 2; z++) {
            y[x][2 * z + e] *= faded * factor[z];
            value[x][2 * z + e] = fmaf(-faded * kOver, sum[x][2 * z + e], value[x][2 * z + e] * unit(z));
          }
        }
    }
    float write[8][4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      Left l = left_of(value[2 * k], value[2 * k + 1], 1.0f);
#pragma unroll
      for (int b = k; b < 4; b++) multiply(write[2 * b], write[2 * b + 1], l, load_right_rows(inverse, kTriangle, kTriangleBytes, 16 * k, 16 * b));
    }
#pragma unroll
    for (int x = 0; x < 8; x++)
#pragma unroll
      for (int e = 0; e < 4; e++) write[x][e] *= kOver;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      Left l = left_of(write[2 * k], write[2 * k + 1], 1.0f);
#pragma unroll
      for (int b = k; b < 4; b++) multiply(y[2 * b], y[2 * b + 1], l, load_right(seen, kTriangle, kTriangleBytes, 16 * b, k));
    }
    __syncthreads();  // all threads are done with the triangles
    copy_triangles(next);
    float scale = kOver * rsqrtf(float(n));
    each(a.y + (size_t(c.first + two) * a.value_heads + h) * d + column, size_t(a.value_heads) * d, c.count, [&](float &to, int x, int z) { to = y[x][z] * (scale * over[z / 2]); });
    // The states after tokens: those that are wanted, then that of the chunk's last.
    for (int t = 0; t < c.count; t++) {
      if (wanted[t] == 0 && t < c.count - 1) continue;
      Left l[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        float faded[2][4];
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            int j = 16 * k + 8 * x + two + e;
            float f = j <= t ? expf(sums[t] - sums[j]) * kOver : 0.0f;
            faded[x][e] = f * write[2 * k + x][e];
            faded[x][2 + e] = f * write[2 * k + x][2 + e];
          }
        l[k] = left_of(faded[0], faded[1], 1.0f);
      }
      float all = expf(sums[t]);
      size_t at = size_t(two) * d + column;
      int position = start + c.first - first + t;
      float *own = wanted[t] & 1 ? state_after(a, seq, position, offset) + at : nullptr;
      float *mark = wanted[t] & 2 ? (float *)(snapshot_after(s, seq, position + 1) + s.input_bytes) + offset + at : nullptr;
#pragma unroll
      for (int x = 0; x < kKeyDim / 8; x += 2) {
        float behind[2][4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          behind[0][e] = all * state[x][e];
          behind[1][e] = all * state[x + 1][e];
        }
#pragma unroll
        for (int k = 0; k < 4; k++) multiply(behind[0], behind[1], l[k], load_right_rows(keys, kKeys, kKeyBytes, 16 * k, 8 * x));
        auto keep = [&](float *&to) {
#pragma unroll
          for (int y = 0; y < 2; y++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
              bool there = 8 * (x + y) + two + e < n;
              if (there && column < d) to[0] = behind[y][e] * over[0];
              if (there && column + 8 < d) to[8] = behind[y][2 + e] * over[1];
              to += e == 0 ? d : 7 * d;
            }
        };
        if (own) keep(own);
        if (mark) keep(mark);
        if (t == c.count - 1) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            state[x][e] = behind[0][e];
            state[x + 1][e] = behind[1][e];
          }
        }
      }
    }
    __syncthreads();  // all threads are done with the chunk
    copy_keys(next);
    c = next;
  }
  copy_wait<0>();
}
