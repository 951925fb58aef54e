// Where keys and values lie in the paged cache (kernels/ref: Pages).
#pragma once
#include "numbers.cuh"

struct Pages {
  unsigned char *arena;
  const int *tables;  // [seqs, width] page numbers, −1: none
  long long page_bytes, slab_bytes;
  long long k, v;  // where the layer's K and V begin in a page
  int width;
  int block;  // tokens a page holds
  int kv_heads, head_dim;
  int key_dim;  // numbers of a head's key that are stored
  int window;   // tokens that the class keeps; 0: all
  int per_slab;
  int pad;
};

DEVICE unsigned char *page_at(const Pages &p, int page) {
  return p.arena + (long long)(page / p.per_slab) * p.slab_bytes + (long long)(page % p.per_slab) * p.page_bytes;
}

// first_block is the block that a table begins with, of a sequence whose step begins at
// position.
DEVICE int first_block(const Pages &p, int position) {
  return p.window == 0 || position < p.window ? 0 : (position - p.window + 1) / p.block;
}

// store_entry is where a table names the page that a block is stored to, to being the
// position behind the step's last; −1: it has left the window by then.
DEVICE int store_entry(const Pages &p, int block, int to) {
  if (p.window == 0) return block < p.width ? block : -1;
  int b = block - first_block(p, to);
  return b < 0 || p.width / 2 + b >= p.width ? -1 : p.width / 2 + b;
}

// turning is which of a key's numbers is the i-th that is stored: of each half of the
// head the first ones.
DEVICE int rotary_dim(const Pages &p, int i) {
  int half = p.key_dim / 2;
  return i >= half ? p.head_dim / 2 + i - half : i;
}
