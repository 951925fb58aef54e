// Writes weights as panels (weights.cuh): rows as a checkpoint has them, read or generated, in
// the order in which fragments are read. Rows of floats can be rounded to 8 bits.
#include "numbers.cuh"

// Made describes generated numbers (kernels: Made).
struct Made {
  const unsigned char *levels;  // [256, size]; null: rows are read
  unsigned long long key;
  int size, pad;
};

struct PanelArgs {
  const unsigned char *rows;  // [count, row_bytes], aligned to 4 and readable to a multiple of 4; host memory is read once
  const uint16_t *order;      // the source of each `bits` bits of a unit: row << 12 | index in the row's part (PanelOrder)
  unsigned char *panels;      // [panels, units, 16·unit_bytes]
  unsigned *bad;              // becomes 1 if a code is not a finite number
  Made made[2], exponents[2];  // exponents: those of MXFP4, a separate tensor; the second are of the second half
  long long row0[2];           // of the generated rows
  int count, row_bytes, unit_bytes, bits;
  int every, at, mask, least;  // of each `every` bytes, byte `at` is not a number if (byte & mask) >= least; every 0: no check
  int half, pad;  // a panel gets 8 of the first half rows and 8 of as many others (LinearArgs.half); 0: rows in their order
};

// PanelRow is a row of a panel: its place among the rows, its half, and its place in that.
struct PanelRow {
  int at, half, in_half;
  DEVICE_METHOD PanelRow(const PanelArgs &a, int panel, int r) {
    half = a.half ? r / 8 : 0;
    in_half = a.half ? panel * 8 + r % 8 : panel * 16 + r;
    at = half * a.half + in_half;
  }
};

constexpr int kPanelRows = 16, kPanelChunk = 1024;

// The words of a chunk of each row; a chunk may begin inside a word.
struct PanelBuffer {
  uint32_t words[kPanelRows][kPanelChunk / 4 + 2];
  DEVICE_METHOD unsigned char *row(int r) { return (unsigned char *)words[r]; }
};

DEVICE unsigned long long mix(unsigned long long x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// made_level returns the level of element i of a row.
DEVICE unsigned made_level(unsigned long long key, long long row, int i) {
  constexpr unsigned long long golden = 0x9e3779b97f4a7c15ull;
  unsigned long long start = mix(key + (unsigned long long)row * golden);
  return unsigned(mix(start + (unsigned long long)(i / 8) * golden) >> (8 * (i % 8))) & 255u;
}

DEVICE unsigned char made_byte(const Made &m, long long row, int i) {
  return __ldg(m.levels + made_level(m.key, row, i / m.size) * m.size + i % m.size);
}

// made_at returns byte i of a row. A block of MXFP4 has 16 bytes of one generated tensor, a row
// each, and one byte of the other.
DEVICE unsigned char made_at(const PanelArgs &a, const PanelRow &r, int i) {
  const Made &made = a.made[r.half], &exponents = a.exponents[r.half];
  long long row = a.row0[r.half] + r.in_half;
  if (exponents.levels == nullptr) return made_byte(made, row, i);
  int block = i / 17, code = i % 17;
  if (code == 16) return made_byte(exponents, row, block);
  return made_byte(made, row * (a.row_bytes / 17) + block, code);
}

// panel_skew returns the offset in the buffer at which a row's part begins.
DEVICE int panel_skew(const PanelArgs &a, int row, int from) {
  return a.made[0].levels ? 0 : int((unsigned(row) * unsigned(a.row_bytes) + unsigned(from)) & 3u);
}

// fetch_row fetches bytes [from, to) of a row and pads them with zeros to n bytes. from is the
// start of a unit. A warp calls it.
DEVICE void fetch_row(const PanelArgs &a, PanelBuffer *buffer, int r, const PanelRow &row, int from, int to, int n) {
  int lane = threadIdx.x & 31, there = row.at < a.count ? to - from : 0, skew = panel_skew(a, row.at, from);
  unsigned char *into = buffer->row(r) + skew;
  if (there && a.made[0].levels) {
    for (int i = lane; i < there; i += 32) into[i] = made_at(a, row, from + i);
  } else if (there) {
    const uint32_t *words = (const uint32_t *)(a.rows + (size_t(row.at) * a.row_bytes + from - skew));
    for (int i = lane; i < ceil_div(skew + there, 4); i += 32) buffer->words[r][i] = words[i];
  }
  __syncwarp();
  for (int i = there + lane; i < n; i += 32) into[i] = 0;
  for (int i = lane; a.every && i < there; i += 32)
    if (i % a.every == a.at && (into[i] & a.mask) >= a.least) *a.bad = 1;
}

// write_units writes the buffer as units of panels; Skewed: rows begin at their skews.
template <bool Skewed>
DEVICE void write_units(const PanelArgs &a, PanelBuffer *buffer, int panel, int from, int units, uint32_t *out) {
  int unit_words = kPanelRows * a.unit_bytes / 4, groups = 32 / a.bits;
  unsigned mask = (1u << a.bits) - 1u;
  for (int w = threadIdx.x; w < units * unit_words; w += blockDim.x) {
    int unit = w / unit_words, first = w % unit_words * groups;
    uint32_t v = 0;
    for (int g = 0; g < groups; g++) {
      unsigned source = __ldg(a.order + first + g), r = source >> 12, bit = (source & 4095u) * a.bits;
      int skew = Skewed ? panel_skew(a, PanelRow(a, panel, r).at, from) : 0;
      v |= (buffer->row(r)[skew + unit * a.unit_bytes + bit / 8] >> (bit % 8) & mask) << (g * a.bits);
    }
    out[w] = v;
  }
}

// units_at returns the address of units of a panel.
DEVICE uint32_t *units_at(const PanelArgs &a, int panel, int unit) {
  size_t all = ceil_div(a.row_bytes, a.unit_bytes);
  return (uint32_t *)(a.panels + (panel * all + unit) * kPanelRows * a.unit_bytes);
}

// panels: grid.x is the panels, grid.y divides the units of a row; a warp for each row.
KERNEL(panels, PanelArgs, 512) {
  __shared__ PanelBuffer buffer;
  int most = kPanelChunk / a.unit_bytes, all = ceil_div(a.row_bytes, a.unit_bytes), panel = blockIdx.x;
  int unit0 = blockIdx.y * most, units = min(most, all - unit0), from = unit0 * a.unit_bytes;
  int to = min(a.row_bytes, from + units * a.unit_bytes);
  for (int r = threadIdx.x >> 5; r < kPanelRows; r += blockDim.x >> 5)
    fetch_row(a, &buffer, r, PanelRow(a, panel, r), from, to, units * a.unit_bytes);
  __syncthreads();
  write_units<true>(a, &buffer, panel, from, units, units_at(a, panel, unit0));
}

struct QuantizeArgs {
  PanelArgs panel;  // row_bytes and the rest describe f8_e4m3; rows and made are floats
  float *scales;    // [count]
  long long half;   // from the scale of a row to that of the other half
};

// float_at returns a number of a row.
template <int S>
DEVICE float float_at(const PanelArgs &a, const PanelRow &r, int col) {
  using T = typename Stored<S>::type;
  const Made &made = a.made[r.half];
  const T *from = made.levels ? (const T *)made.levels + made_level(made.key, a.row0[r.half] + r.in_half, col)
                              : (const T *)a.rows + (size_t(r.at) * a.row_bytes + col);
  return Stored<S>::read(*from);
}

// quantize_panels: a block for each panel, a warp for each row. The largest magnitude of a row
// becomes 448 (engine/backend/cuda: scales by row).
template <int S>
DEVICE void quantize_panels(const QuantizeArgs &q) {
  __shared__ PanelBuffer buffer;
  const PanelArgs &a = q.panel;
  int lane = threadIdx.x & 31, r = threadIdx.x >> 5, panel = blockIdx.x;
  PanelRow row(a, panel, r);
  float most = 0.0f;
  bool number = true;
  for (int i = lane; row.at < a.count && i < a.row_bytes; i += 32) {
    float v = float_at<S>(a, row, i);
    number = number && v - v == 0.0f;
    most = fmaxf(most, fabsf(v));
  }
  if (!number) *a.bad = 1;
  float scale = warp_max(most) / 448.0f;
  if (scale == 0.0f) scale = 1.0f;
  if (lane == 0 && row.at < a.count) q.scales[row.half * q.half + row.in_half] = scale;
  int all = ceil_div(a.row_bytes, a.unit_bytes), step = kPanelChunk / a.unit_bytes;
  for (int unit0 = 0; unit0 < all; unit0 += step) {
    int units = min(step, all - unit0), from = unit0 * a.unit_bytes;
    unsigned char *into = buffer.row(r);
    for (int i = lane; i < units * a.unit_bytes; i += 32)
      into[i] = row.at < a.count && from + i < a.row_bytes ? to_e4m3(float_at<S>(a, row, from + i) / scale) : 0;
    __syncthreads();
    write_units<false>(a, &buffer, panel, from, units, units_at(a, panel, unit0));
    __syncthreads();  // all warps are done with the chunk
  }
}

KERNEL(panels_quantize_f32, QuantizeArgs, 512) { quantize_panels<kF32>(a); }
KERNEL(panels_quantize_f16, QuantizeArgs, 512) { quantize_panels<kF16>(a); }
KERNEL(panels_quantize_bf16, QuantizeArgs, 512) { quantize_panels<kBF16>(a); }
