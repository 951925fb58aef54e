// Stores keys and values into pages: kernels of their own, and part of store_pack.
#pragma once
#include "pages.cuh"

struct StoreArgs {
  Pages pages;
  const void *k, *v;      // [rows, kv_heads·head_dim], in the format of the pages; with latent k is [rows, kv_heads·key_dim]
  const int *positions;   // [_]
  const int *seq;         // [_] the sequence of a token row
  const int *first;       // [seqs+1]
  const int *accepted_row;  // [rows] or null: row s is of sequence s, at positions[accepted_row[s]] + by
  const int *ids;         // [rows], for store_tokens
  long long plane;        // offset of the token plane in a page, for store_tokens
  int rows, by;
  int latent, pad;  // latent 1: k has the stored dimensions alone
};

// slot_of returns the page of a row and sets its slot; −1: the row is not stored.
DEVICE int slot_of(const StoreArgs &a, int row, int *slot) {
  const Pages &p = a.pages;
  int token = a.accepted_row ? a.accepted_row[row] : row;
  if (token < 0) return -1;
  int s = a.accepted_row ? row : a.seq[token];
  if (s < 0) return -1;  // padding rows of a graph have no sequence
  int position = a.positions[token] + (a.accepted_row ? a.by : 0);
  int to = a.accepted_row ? position + 1 : a.positions[a.first[s + 1] - 1] + 1;
  int e = store_entry(p, position / p.block, to);
  *slot = position % p.block;
  return e < 0 ? -1 : p.tables[(long long)s * p.width + e];
}

constexpr int kStoreRows = 16;  // tokens of a tile

// StoreBeside is what a launch stores in blocks of its own, beside what it is for: neither reads what the other writes.
struct StoreBeside {
  int across, bytes;  // blocks from across on store a head each, in numbers of 1, 2 or 4 bytes; across 0: none
  StoreArgs store;
};

// store_kv stores the block-th 16 rows of head h. All threads of a block call it. Keys are transposed in
// shared memory, because a page stores them by dimension: so the 16 tokens of a block are written
// contiguously.
template <class T>
DEVICE void store_kv(const StoreArgs &a, int block, int h) {
  DYNAMIC_SHARED(memory);
  const Pages &p = a.pages;
  __shared__ int page[kStoreRows], slot[kStoreRows];
  T *tile = (T *)memory;  // [16][wide + 2]: the odd stride spreads a column over the banks
  int row0 = block * kStoreRows, d = p.head_dim, wide = a.latent ? p.key_dim : d, stride = wide + 2;
  int rows = min(kStoreRows, a.rows - row0);
  if (threadIdx.x < kStoreRows) {
    int at = 0;
    page[threadIdx.x] = int(threadIdx.x) < rows ? slot_of(a, row0 + threadIdx.x, &at) : -1;
    slot[threadIdx.x] = at;
  }
  for (int i = threadIdx.x; i < rows * wide; i += blockDim.x)
    tile[i / wide * stride + i % wide] = ((const T *)a.k)[(size_t(row0 + i / wide) * p.kv_heads + h) * wide + i % wide];
  __syncthreads();
  for (int i = threadIdx.x; i < kStoreRows * p.key_dim; i += blockDim.x) {
    int r = i % kStoreRows, j = i / kStoreRows;
    if (page[r] < 0) continue;
    T *k = (T *)(page_at(p, page[r]) + p.k);
    k[(size_t(h) * p.key_dim + j) * p.block + slot[r]] = tile[r * stride + (a.latent ? j : rotary_dim(p, j))];
  }
  for (int i = threadIdx.x; i < rows * d; i += blockDim.x) {
    int r = i / d;
    if (page[r] < 0) continue;
    T *v = (T *)(page_at(p, page[r]) + p.v);
    v[(size_t(h) * p.block + slot[r]) * d + i % d] = ((const T *)a.v)[(size_t(row0 + r) * p.kv_heads + h) * d + i % d];
  }
}

// stores stores 16 rows of a head, in the blocks that are for that, and reports whether this is one of them: head is the
// number of the block behind across.
DEVICE bool stores(const StoreBeside &a, int block, int head) {
  if (a.across == 0 || head < 0) return false;
  if (block * kStoreRows >= a.store.rows) return true;
  if (a.bytes == 1)
    store_kv<uint8_t>(a.store, block, head);
  else if (a.bytes == 2)
    store_kv<uint16_t>(a.store, block, head);
  else
    store_kv<float>(a.store, block, head);
  return true;
}
