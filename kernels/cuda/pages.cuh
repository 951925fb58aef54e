// Addresses of keys and values in the paged cache (kernels/ref: Pages).
#pragma once
#include "numbers.cuh"

struct Pages {
  unsigned char *arena;
  const int *tables;  // [seqs, width] page numbers, −1: no page
  long long page_bytes, slab_bytes;
  long long k, v;  // offsets of the layer's K and V in a page
  int width;
  int block;  // tokens of a page
  int kv_heads, head_dim;
  int key_dim;  // stored dimensions of a head's key
  int window;   // tokens that the class keeps; 0: all
  int per_slab;
  int chunked;  // the class keeps a chunk of window tokens, and a token sees its chunk
};

DEVICE unsigned char *page_at(const Pages &p, unsigned page) {
  unsigned slab = page / unsigned(p.per_slab);
  return p.arena + (long long)slab * p.slab_bytes + (long long)(page - slab * p.per_slab) * p.page_bytes;
}

// first_block returns the first block of a sequence's page table, for a step that begins at
// position.
DEVICE int first_block(const Pages &p, int position) {
  if (p.window == 0 || position < p.window) return 0;
  return (p.chunked ? position / p.window * p.window : position - p.window + 1) / p.block;
}

// store_entry returns the table entry of the page that a block is stored to; `to` is the
// position after the step's last. It returns −1 if the block leaves the window or the chunk by then.
DEVICE int store_entry(const Pages &p, int block, int to) {
  if (p.window == 0) return block < p.width ? block : -1;
  int b = block - first_block(p, to);
  return b < 0 || p.width / 2 + b >= p.width ? -1 : p.width / 2 + b;
}

// rotary_dim returns the dimension of a key that is stored as the i-th: pages store the first
// dimensions of each half of the head.
DEVICE int rotary_dim(const Pages &p, int i) {
  int half = p.key_dim / 2;
  return i >= half ? p.head_dim / 2 + i - half : i;
}
