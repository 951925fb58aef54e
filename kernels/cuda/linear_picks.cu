// Products of experts by the warpgroups of sm_90a. They read the rows of X by the order of places, so no launch writes them
// in that order before; dense products have kernels without it (linear_wide.cu, linear_mid.cu).
#include "linear_wide.cuh"

#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct PicksArgs {
  LinearArgs product;  // of experts, without splits
  const int *order;    // [rows] the row of X in this place, −1: none
  int gathers, pad;    // 1: X is row by row (PackArgs.words is 2), and order says which; 0: it is in word order, by places
};

// PickCopies are the copies of X for a stage, in pieces of 16 bytes, which are 8 columns of a row. Where its rows begin
// a thread looks up once. Neighbouring threads read 32 bytes of a row. A place without a row has the first one: nothing reads its sums.
template <int Steps, int Count>
struct PickCopies {
  static constexpr int kThreads = 32 * kWarps, kEach = 32 * Steps, kApart = kThreads / kEach, kMany = Count / kApart;
  static_assert(kThreads % kEach == 0 && Count % kApart == 0, "a thread copies the same part of all tiles");
  const unsigned char *from;
  uint32_t begins[kMany];  // of the thread's rows, in pieces
  uint32_t to, next;       // offset of the thread's first piece in a stage; from a stage to the next in X
  int part;                // offset of its columns in the stage of a tile
  DEVICE_METHOD PickCopies(const PicksArgs &p, int tile0, int steps) {
    int tile = threadIdx.x / kEach, e = threadIdx.x % kEach, g = e % 8, piece = e / 8;
    if (p.gathers) g = e / 2 % 8, piece = e / 16 * 2 + e % 2;
#pragma unroll
    for (int i = 0; i < kMany; i++) {
      int place = 8 * (tile0 + tile + kApart * i) + g;
      begins[i] = p.gathers ? uint32_t(max(p.order[place], 0)) * 4 * steps : uint32_t(place / 8 * steps * 32 + g);
    }
    part = 128 * piece;
    to = kEach * 16 * tile + part + 16 * g;
    from = (const unsigned char *)p.product.x + piece * (p.gathers ? 16 : 128);
    next = Steps * (p.gathers ? 64 : 512);
  }
  DEVICE_METHOD void copy_run(unsigned char *stage, int bytes) {
    int size = part < bytes ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kMany; i++) copy_async(stage + to + 16 * kThreads * i, from + 16 * size_t(begins[i]), size);
    from += next;
  }
};

// picks_block computes the first 8·N rows of a block of 8·Across.
template <class W, int N, int Across>
DEVICE void picks_block(const PicksArgs &p, int expert) {
  using S = Shape<W, Wide, N, Across>;
  int steps = steps_of(p.product.in);
  Tile<S::kPanels, N> block(p.product, expert, ceil_div(steps, S::kSteps), 1);  // units: stages
  block.tile0 = Across * blockIdx.x;
  multiply_block<W, Wide, N, Across>(p.product, block, expert, PickCopies<S::kSteps, N>(p, block.tile0, steps));
}

// linear_picks is linear_group for experts. A block of 128 rows multiplies by 64 where an expert has no more left for it: the same
// sums in the same order.
template <class W, int N>
DEVICE void linear_picks(const PicksArgs &p) {
  int expert = p.product.experts[blockIdx.x];
  if (expert < 0) return;
  if constexpr (N == 16)
    if (p.order[8 * N * blockIdx.x + 4 * N] < 0) return picks_block<W, N / 2, N>(p, expert);
  picks_block<W, N, N>(p, expert);
}

#define LINEAR_PICKS(name, W) \
  KERNEL(linear_##name##_picks_wide, PicksArgs, 256) { linear_picks<W, 16>(a); }
#define LINEAR_PICKS_MID(name, W)                                                       \
  KERNEL_OF(linear_##name##_picks_mid_16, PicksArgs, 256, 2) { linear_picks<W, 2>(a); } \
  KERNEL_OF(linear_##name##_picks_mid_32, PicksArgs, 256, 2) { linear_picks<W, 4>(a); } \
  KERNEL_OF(linear_##name##_picks_mid_64, PicksArgs, 256, 2) { linear_picks<W, 8>(a); } \
  LINEAR_PICKS(name, W)
LINEAR_PICKS_MID(f8_e4m3, WeightsE4M3)
LINEAR_PICKS_MID(mxfp4, WeightsMXFP4)
LINEAR_PICKS_MID(q8_0, WeightsQ8_0)
LINEAR_PICKS_MID(q4_0, WeightsQ4_0)
LINEAR_PICKS_MID(iq4_nl, WeightsIQ4_NL)
LINEAR_PICKS(bf16, WeightsBF16)
LINEAR_PICKS(f16, WeightsF16)
LINEAR_PICKS(f8_e5m2, WeightsE5M2)
LINEAR_PICKS(q5_0, WeightsQ5_0)

#endif
