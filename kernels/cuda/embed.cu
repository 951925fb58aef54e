// Rows of a table by token id, and rows of activations by index.
#include "numbers.cuh"

struct EmbedArgs {
  const int *ids;     // [rows]
  const void *table;  // [table_rows, cols], row by row
  float *y;           // [rows, cols]
  float scale;
  int rows, cols;
  int row0, table_rows;  // ids outside [row0, row0+table_rows) give zeros
  int pad;
};

// embed: a block for each row, any number of threads.
template <int S>
DEVICE void embed(const EmbedArgs &a) {
  int row = a.ids[blockIdx.x] - a.row0;
  float *y = a.y + size_t(blockIdx.x) * a.cols;
  auto *from = (const typename Stored<S>::type *)a.table + size_t(max(row, 0)) * a.cols;
  bool there = row >= 0 && row < a.table_rows;
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) y[i] = there ? Stored<S>::read(__ldg(from + i)) * a.scale : 0.0f;
}

KERNEL(embed_f32, EmbedArgs, 256) { embed<kF32>(a); }
KERNEL(embed_f16, EmbedArgs, 256) { embed<kF16>(a); }
KERNEL(embed_bf16, EmbedArgs, 256) { embed<kBF16>(a); }

struct GatherArgs {
  const float *x;   // [_, cols]
  float *y;         // [rows, cols]
  const int *rows;  // [_] which row of x; negative: zeros
  int cols;
  int last;  // 1: rows is the first row of each sequence [n+1], and the last row of each sequence is picked
};

// gather: a block for each row of y.
KERNEL(gather, GatherArgs, 256) {
  int r = blockIdx.x, from = a.last ? a.rows[r + 1] - 1 : a.rows[r];
  if (a.last && from < a.rows[r]) from = -1;  // the sequence has no rows
  const float *x = a.x + size_t(max(from, 0)) * a.cols;
  float *y = a.y + size_t(r) * a.cols;
  if (a.cols % 4 == 0) {
    for (int i = threadIdx.x; i < a.cols / 4; i += blockDim.x)
      ((float4 *)y)[i] = from >= 0 ? __ldg((const float4 *)x + i) : make_float4(0, 0, 0, 0);
    return;
  }
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) y[i] = from >= 0 ? x[i] : 0.0f;
}

struct TokensArgs {
  const int *tokens;   // [rows] an id, or −1−r for row r of sampled
  const int *sampled;  // samples of the previous step; −1 reads as 0
  int *out;            // [rows]
  int rows, pad;
};

KERNEL(tokens, TokensArgs, 256) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.rows) return;
  int t = a.tokens[i];
  a.out[i] = t >= 0 ? t : max(0, a.sampled[-1 - t]);
}
