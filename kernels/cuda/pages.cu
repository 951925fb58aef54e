// Stores keys, values and token ids into pages.
#include "store.cuh"

// store_kv: a block for 16 rows (x) of a head (y), 128 threads.
KERNEL(store_kv_8, StoreArgs, 128) { store_kv<uint8_t>(a, blockIdx.x, blockIdx.y); }
KERNEL(store_kv_16, StoreArgs, 128) { store_kv<uint16_t>(a, blockIdx.x, blockIdx.y); }
KERNEL(store_kv_32, StoreArgs, 128) { store_kv<float>(a, blockIdx.x, blockIdx.y); }

// store_tokens: a thread for each row.
KERNEL(store_tokens, StoreArgs, 256) {
  int row = blockIdx.x * blockDim.x + threadIdx.x, slot = 0;
  if (row >= a.rows) return;
  int page = slot_of(a, row, &slot);
  if (page >= 0) ((int *)(page_at(a.pages, page) + a.plane))[slot] = a.ids[row];
}
