// Gated delta nets: the causal convolution before them and the recurrence, with states in
// pages and checkpoints (engine/backend: Conv, DeltaNet, checkpoints).
#include "pages.cuh"

constexpr int kStores = 2;  // checkpoints that a sequence leaves in a step

struct States {
  Pages pages;              // of the class: arena, tables, widths; k is where the layer's state begins in a page
  const int *marks;         // [seqs, 1+2·kStores] the checkpoints' table, or null
  long long mark_page_bytes, mark_slab_bytes, mark_k;  // where checkpoints lie
  int mark_per_slab;
  int rows, cols;           // of the convolution's inputs that a state keeps
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
// begin_of is the checkpoint that a sequence begins from, or null.
DEVICE unsigned char *begin_of(const States &s, int seq) {
  return s.marks ? mark_at(s, s.marks[seq * (1 + 2 * kStores)]) : nullptr;
}
// stored_after is the checkpoint that the state of the first n tokens goes to, or null.
DEVICE unsigned char *stored_after(const States &s, int seq, int n) {
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

// Which row of a state has the input of a position, in a state that ends before end.
DEVICE int input_row(const States &s, int keep, int position, int end) {
  return s.rows > keep ? position % s.rows : position - (end - s.rows);
}

// conv: grid.x shares out the columns, grid.y is the sequences; a thread walks a column.
template <int S>
DEVICE void conv(const ConvArgs &a) {
  const States &s = a.states;
  int c = blockIdx.x * blockDim.x + threadIdx.x, seq = blockIdx.y, keep = a.kernel - 1;
  int first = a.first[seq], last = a.first[seq + 1];
  if (c >= s.cols || first == last) return;
  int start = a.positions[first];
  unsigned char *own = state_of(s, seq), *begin = begin_of(s, seq);
  float w[kMostKernel], before[kMostKernel];
#pragma unroll
  for (int k = 0; k < kMostKernel; k++) {
    w[k] = k < a.kernel ? a.w[(size_t)c * a.kernel + k] : 0.0f;
    int p = start - keep + k;
    before[k] = k < keep && p >= 0 ? input_at<S>(begin ? begin : own, input_row(s, keep, p, start), s.cols, c) : 0.0f;
  }
  auto write = [&](unsigned char *to, int end) {
#pragma unroll
    for (int k = 0; k < kMostKernel; k++) {
      int p = end - keep + k;
      if (k < keep && (p >= 0 || s.rows <= keep)) put_input<S>(to, input_row(s, keep, p, end), s.cols, c, before[k]);
    }
  };
  if (begin) write(own, start);
  for (int t = first; t < last; t++) {
    float x = Stored<S>::read(Stored<S>::write(a.x[(size_t)t * s.cols + c])), sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kMostKernel; k++) sum = k < keep ? fmaf(w[k], before[k], sum) : k == keep ? fmaf(w[k], x, sum) : sum;
    a.y[(size_t)t * s.cols + c] = sum / (1.0f + expf(-sum));
#pragma unroll
    for (int k = 0; k < kMostKernel - 1; k++) before[k] = k + 1 < keep ? before[k + 1] : k + 1 == keep ? x : before[k];
    int end = start + t - first + 1;
    if (t >= last - s.rows) write(own, end);
    if (unsigned char *mark = stored_after(s, seq, end)) write(mark, end);
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
  const int *samples;    // [sample_count] token rows whose states are kept too, of several copies
  int key_heads, value_heads, key_dim, value_dim;
  int sample_count, pad;
};

constexpr int kKeyDim = 128;     // numbers of a key at most
constexpr int kColumnLanes = 4;  // lanes that share a column of the state: key_dim/4 registers each

// inverse_length is what brings 4-strided numbers of a vector to length one; all lanes of
// the warp have it.
DEVICE float inverse_length(const float *x, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x & 31; i < n; i += 32) sum = fmaf(x[i], x[i], sum);
  return 1.0f / sqrtf(warp_sum(sum) + 1e-6f);
}

// delta: grid.x is blocks of 32 columns of values, grid.y the value heads, grid.z the
// sequences; 128 threads: four lanes hold a column of the state in registers and walk the
// tokens. A column depends on no other.
KERNEL(delta, DeltaArgs, 128) {
  const States &s = a.states;
  __shared__ float q[kKeyDim], k[kKeyDim];
  int h = blockIdx.y, seq = blockIdx.z, lane = threadIdx.x % kColumnLanes;
  int column = blockIdx.x * 32 + threadIdx.x / kColumnLanes, n = a.key_dim, d = a.value_dim;
  int first = a.first[seq], last = a.first[seq + 1];
  if (first == last) return;
  bool there = column < d;
  int start = a.positions[first], keys = a.key_heads * n, key_head = h / (a.value_heads / a.key_heads);
  size_t in = size_t(2) * keys + size_t(a.value_heads) * d, offset = size_t(h) * n * d;
  unsigned char *matrices = state_of(s, seq) + s.input_bytes, *begin = begin_of(s, seq);
  auto copy_after = [&](int position) { return (float *)(matrices + position % s.copies * s.matrix_bytes) + offset; };
  const float *from = begin ? (const float *)(begin + s.input_bytes) + offset : start > 0 ? copy_after(start - 1) : nullptr;
  float state[kKeyDim / kColumnLanes];
#pragma unroll
  for (int i = 0; i < kKeyDim / kColumnLanes; i++) {
    int row = i * kColumnLanes + lane;
    state[i] = from && there && row < n ? from[(size_t)row * d + column] : 0.0f;
  }
  auto keep = [&](float *to) {
#pragma unroll
    for (int i = 0; i < kKeyDim / kColumnLanes; i++) {
      int row = i * kColumnLanes + lane;
      if (there && row < n) to[(size_t)row * d + column] = state[i];
    }
  };
  float decay = -expf(a.a_log[h]), bias = a.bias[h];
  for (int t = first; t < last; t++) {
    const float *x = a.qkv + t * in, *xq = x + key_head * n, *xk = x + keys + key_head * n;
    float iq = inverse_length(xq, n) / sqrtf(float(n)), ik = inverse_length(xk, n);
    __syncthreads();  // the token before is done with
    for (int i = threadIdx.x; i < kKeyDim; i += blockDim.x) {
      q[i] = i < n ? xq[i] * iq : 0.0f;
      k[i] = i < n ? xk[i] * ik : 0.0f;
    }
    __syncthreads();
    float g = a.ba[(size_t)t * 2 * a.value_heads + a.value_heads + h] + bias;
    float softplus = g > 20.0f ? g : log1pf(expf(g));
    float e = expf(decay * softplus), beta = 1.0f / (1.0f + expf(-a.ba[(size_t)t * 2 * a.value_heads + h]));
    float seen = 0.0f, y = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeyDim / kColumnLanes; i++) {
      state[i] *= e;
      seen = fmaf(state[i], k[i * kColumnLanes + lane], seen);
    }
    seen += __shfl_xor_sync(kAllLanes, seen, 1);
    seen += __shfl_xor_sync(kAllLanes, seen, 2);
    float delta = beta * ((there ? x[2 * keys + (size_t)h * d + column] : 0.0f) - seen);
#pragma unroll
    for (int i = 0; i < kKeyDim / kColumnLanes; i++) {
      state[i] = fmaf(k[i * kColumnLanes + lane], delta, state[i]);
      y = fmaf(state[i], q[i * kColumnLanes + lane], y);
    }
    y += __shfl_xor_sync(kAllLanes, y, 1);
    y += __shfl_xor_sync(kAllLanes, y, 2);
    if (there && lane == 0) a.y[((size_t)t * a.value_heads + h) * d + column] = y;
    int position = start + t - first;
    bool wanted = t == last - 1;
    for (int i = 0; s.copies > 1 && !wanted && i < a.sample_count; i++) wanted = a.samples[i] == t;
    if (wanted) keep(copy_after(position));
    if (unsigned char *mark = stored_after(s, seq, position + 1)) keep((float *)(mark + s.input_bytes) + offset);
  }
}
