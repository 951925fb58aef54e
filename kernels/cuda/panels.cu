// Weights as panels (weights.cuh): rows as a checkpoint has them, read or made up, in the
// order in which fragments are read; rows of floats also rounded to 8 bits.
#include "numbers.cuh"

// Made are numbers that are made up (kernels: Made).
struct Made {
  const unsigned char *levels;  // [256, size]; null: rows are read
  unsigned long long key;
  int size, pad;
};

struct PanelArgs {
  const unsigned char *rows;  // [count, row_bytes] at a multiple of 4, to be read up to one; host memory is read once
  const uint16_t *order;      // of each bits of a unit: row << 12 | which bits of the row's part (PanelOrder)
  unsigned char *panels;      // [panels, units, 16·unit_bytes]
  unsigned *bad;              // becomes 1 where a code is no number
  Made made, exponents;       // exponents: those of MXFP4, a tensor of their own
  long long row0;             // of what is made up
  int count, row_bytes, unit_bytes, bits;
  int every, at, mask, least;  // bytes at of each every are no number where (byte & mask) >= least; every 0: none
};

constexpr int kPanelRows = 16, kPanelChunk = 1024;

// Words of a row's part of a chunk: it may begin in the middle of one.
struct PanelBuffer {
  uint32_t words[kPanelRows][kPanelChunk / 4 + 2];
  DEVICE_METHOD unsigned char *row(int r) { return (unsigned char *)words[r]; }
};

DEVICE unsigned long long mix(unsigned long long x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// made_level is which level element i of a row is.
DEVICE unsigned made_level(unsigned long long key, long long row, int i) {
  constexpr unsigned long long golden = 0x9e3779b97f4a7c15ull;
  unsigned long long start = mix(key + (unsigned long long)row * golden);
  return unsigned(mix(start + (unsigned long long)(i / 8) * golden) >> (8 * (i % 8))) & 255u;
}

DEVICE unsigned char made_byte(const Made &m, long long row, int i) {
  return __ldg(m.levels + made_level(m.key, row, i / m.size) * m.size + i % m.size);
}

// made_at is byte i of a row. A block of MXFP4 is 16 bytes of one tensor, of which each is a
// row, and one of another.
DEVICE unsigned char made_at(const PanelArgs &a, int row, int i) {
  if (a.exponents.levels == nullptr) return made_byte(a.made, a.row0 + row, i);
  int block = i / 17, code = i % 17;
  if (code == 16) return made_byte(a.exponents, a.row0 + row, block);
  return made_byte(a.made, (a.row0 + row) * (a.row_bytes / 17) + block, code);
}

// skew is where in its room the part of a row begins.
DEVICE int panel_skew(const PanelArgs &a, int row, int from) {
  return a.made.levels ? 0 : int((unsigned(row) * unsigned(a.row_bytes) + unsigned(from)) & 3u);
}

// fetch_row brings bytes [from, to) of a row, of which the panels keep n: zeros behind. They begin with
// a whole unit. A warp calls it.
DEVICE void fetch_row(const PanelArgs &a, PanelBuffer *buffer, int r, int row, int from, int to, int n) {
  int lane = threadIdx.x & 31, there = row < a.count ? to - from : 0, skew = panel_skew(a, row, from);
  unsigned char *into = buffer->row(r) + skew;
  if (there && a.made.levels) {
    for (int i = lane; i < there; i += 32) into[i] = made_at(a, row, from + i);
  } else if (there) {
    const uint32_t *words = (const uint32_t *)(a.rows + (size_t(row) * a.row_bytes + from - skew));
    for (int i = lane; i < ceil_div(skew + there, 4); i += 32) buffer->words[r][i] = words[i];
  }
  __syncwarp();
  for (int i = there + lane; i < n; i += 32) into[i] = 0;
  for (int i = lane; a.every && i < there; i += 32)
    if (i % a.every == a.at && (into[i] & a.mask) >= a.least) *a.bad = 1;
}

// write_units writes what lies in room as units of panels; Skewed says that rows begin at skews.
template <bool Skewed>
DEVICE void write_units(const PanelArgs &a, PanelBuffer *buffer, int panel, int from, int units, uint32_t *out) {
  int unit_words = kPanelRows * a.unit_bytes / 4, groups = 32 / a.bits;
  unsigned mask = (1u << a.bits) - 1u;
  for (int w = threadIdx.x; w < units * unit_words; w += blockDim.x) {
    int unit = w / unit_words, first = w % unit_words * groups;
    uint32_t v = 0;
    for (int g = 0; g < groups; g++) {
      unsigned source = __ldg(a.order + first + g), r = source >> 12, bit = (source & 4095u) * a.bits;
      int skew = Skewed ? panel_skew(a, panel * kPanelRows + r, from) : 0;
      v |= (buffer->row(r)[skew + unit * a.unit_bytes + bit / 8] >> (bit % 8) & mask) << (g * a.bits);
    }
    out[w] = v;
  }
}

// units_at is where units of a panel lie.
DEVICE uint32_t *units_at(const PanelArgs &a, int panel, int unit) {
  size_t all = ceil_div(a.row_bytes, a.unit_bytes);
  return (uint32_t *)(a.panels + (panel * all + unit) * kPanelRows * a.unit_bytes);
}

// panels: grid.x is the panels, grid.y shares out the units of a row, a warp for each row.
KERNEL(panels, PanelArgs, 512) {
  __shared__ PanelBuffer buffer;
  int most = kPanelChunk / a.unit_bytes, all = ceil_div(a.row_bytes, a.unit_bytes), panel = blockIdx.x;
  int unit0 = blockIdx.y * most, units = min(most, all - unit0), from = unit0 * a.unit_bytes;
  int to = min(a.row_bytes, from + units * a.unit_bytes);
  for (int r = threadIdx.x >> 5; r < kPanelRows; r += blockDim.x >> 5)
    fetch_row(a, &buffer, r, panel * kPanelRows + r, from, to, units * a.unit_bytes);
  __syncthreads();
  write_units<true>(a, &buffer, panel, from, units, units_at(a, panel, unit0));
}

struct QuantizeArgs {
  PanelArgs panel;  // row_bytes and the rest are those of f8_e4m3; rows and made are floats
  float *scales;    // [count]
};

// float_at is a number of a row.
template <int S>
DEVICE float float_at(const PanelArgs &a, int row, int col) {
  using T = typename Stored<S>::type;
  const T *from = a.made.levels ? (const T *)a.made.levels + made_level(a.made.key, a.row0 + row, col)
                                : (const T *)a.rows + (size_t(row) * a.row_bytes + col);
  return Stored<S>::read(*from);
}

// quantize_panels: a block for each panel, a warp for each row: what is largest in it becomes 448
// (engine/backend/cuda: scales by row).
template <int S>
DEVICE void quantize_panels(const QuantizeArgs &q) {
  __shared__ PanelBuffer buffer;
  const PanelArgs &a = q.panel;
  int lane = threadIdx.x & 31, r = threadIdx.x >> 5, panel = blockIdx.x, row = panel * kPanelRows + r;
  float most = 0.0f;
  bool number = true;
  for (int i = lane; row < a.count && i < a.row_bytes; i += 32) {
    float v = float_at<S>(a, row, i);
    number = number && v - v == 0.0f;
    most = fmaxf(most, fabsf(v));
  }
  if (!number) *a.bad = 1;
  float scale = warp_max(most) / 448.0f;
  if (scale == 0.0f) scale = 1.0f;
  if (lane == 0 && row < a.count) q.scales[row] = scale;
  int all = ceil_div(a.row_bytes, a.unit_bytes), step = kPanelChunk / a.unit_bytes;
  for (int unit0 = 0; unit0 < all; unit0 += step) {
    int units = min(step, all - unit0), from = unit0 * a.unit_bytes;
    unsigned char *into = buffer.row(r);
    for (int i = lane; i < units * a.unit_bytes; i += 32)
      into[i] = row < a.count && from + i < a.row_bytes ? to_e4m3(float_at<S>(a, row, from + i) / scale) : 0;
    __syncthreads();
    write_units<false>(a, &buffer, panel, from, units, units_at(a, panel, unit0));
    __syncthreads();  // the chunk is done with
  }
}

KERNEL(panels_quantize_f32, QuantizeArgs, 512) { quantize_panels<kF32>(a); }
KERNEL(panels_quantize_f16, QuantizeArgs, 512) { quantize_panels<kF16>(a); }
KERNEL(panels_quantize_bf16, QuantizeArgs, 512) { quantize_panels<kBF16>(a); }
