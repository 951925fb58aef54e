/* generic.c: Linear in portable C. One code path computes every lane, so that the compiler's
 * choice between fused and separate rounding is the same for all rows. */
#include "panel.h"

static const float fp4[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* nibble returns the nibble of (k, lane) in a run of dwords. */
static int nibble(const uint8_t *p, int64_t k, int lane) {
	uint32_t dword;
	memcpy(&dword, p + k / 8 * 128 + lane * 4, 4);
	return (int)(dword >> nibble_at(k % 8) & 15);
}

/* The scale and minimum of a lane for the 16 or 32 k's around k, and the start of the fields of
 * 32 k's. */
typedef struct {
	float scale, least;
	const uint8_t *fields;
} blocks_place;

static blocks_place place_of(blocks b, const uint8_t *p, int64_t k, int lane) {
	blocks_place at = {0};
	if (!b.subs) {
		p += blocks_bytes(b, k & ~(int64_t)31);
		at.scale = half_float(load16(p + lane * 2));
		if (b.least) at.least = half_float(load16(p + 64 + lane * 2));
		at.fields = p + blocks_heads(b);
		return at;
	}
	p += blocks_bytes(b, k & ~(int64_t)127);
	const uint8_t *sub = p + blocks_heads(b) + k % 128 / 32 * blocks_each(b);
	int row = (int)(k % 32) * b.subs / 32 * PANEL + lane;
	at.scale = half_float(load16(p + lane * 2)) * (float)(int8_t)sub[row];
	if (b.least) at.least = -(half_float(load16(p + 64 + lane * 2)) * (float)(int8_t)sub[b.subs * PANEL + row]);
	at.fields = sub + b.subs * PANEL * (1 + b.least);
	return at;
}

/* field returns the bits of k, below 32, in fields of `bits` bits. */
static uint32_t field(const uint8_t *fields, int bits, int k, int lane) {
	uint32_t word;
	int per = 32 / bits;
	memcpy(&word, fields + k / per * 128 + lane * 4, 4);
	return word >> (k % per * bits) & ((1u << bits) - 1);
}

/* table_of returns the table of a format, if it has one. */
static const float *table_of(int32_t format) {
	static const float iq4[16] = IQ4_TABLE;
	return blocks_of(format).table == TABLE_EIGHTHS ? expanded_table(format) : iq4;
}

/* number returns the value of k, below 32, with its scale and minimum. The product is exact. */
static float number(blocks b, const float *table, blocks_place at, int k, int lane) {
	uint32_t code = field(at.fields, b.low, k, lane);
	if (b.high) code |= field(at.fields + 128 * b.low, b.high, k, lane) << b.low;
	if (b.table) return table[code] * at.scale;
	float x = (float)((int)code - b.zero) * at.scale;
	return b.least ? x + at.least : x;
}

/* element returns the value at (k, lane) of one panel, without the scale of a group. */
static float element(int32_t format, const uint8_t *p, int64_t k, int lane) {
	float f;
	switch (format % VAPP_SCALES) {
	case VAPP_F32: memcpy(&f, p + k * 128 + lane * 4, 4); return f;
	case VAPP_F16: return half_float(load16(p + k * 64 + lane * 2));
	case VAPP_BF16: return bf16_float(load16(p + k / 2 * 128 + lane * 4 + k % 2 * 2));
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2: return half_float(float8_half(format, p[k / 2 * 64 + lane * 2 + k % 2]));
	case VAPP_MXFP4: return fp4[nibble(p, k, lane)];
	case VAPP_NVFP4: return fp4[nibble(nvfp4_codes(p, k & ~(int64_t)31), k % 32, lane)];
	case VAPP_Q8_0: return (float)(int8_t)p[k / 32 * 1088 + 64 + k % 32 * 32 + lane];
	case VAPP_Q4_0: return (float)(nibble(p + k / 32 * 576 + 64, k % 32, lane) - 8);
	case VAPP_I8: return (float)(int8_t)p[k * 32 + lane];
	}
	if (in_blocks(format)) return number(blocks_of(format), table_of(format), place_of(blocks_of(format), p, k, lane), k % 32, lane);
	p += panel_k(format, k & ~(int64_t)31);
	q4_head h = q4_head_at(format, p, lane);
	return (float)nibble(p + 128, k % 32, lane) * h.d + h.m;
}

void vapp_linear_row(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst) {
	const vapp_linear a = {.w = w, .format = format, .in = in, .out = out};
	const uint8_t *p = panel_at(&a, r / PANEL);
	int64_t group = group_k(format);
	for (int64_t k = 0; k < in; k++) {
		dst[k] = element(format, p, k, r % PANEL);
		if (group) dst[k] *= group_scale(format, scales_at(&a, r / PANEL, k), r % PANEL);
		if (in_nvfp4(format)) dst[k] *= output_scale(format, outputs_at(&a, r / PANEL), r % PANEL);
	}
}

/* unpack_plain writes n k's of a panel from p on as [n][32] floats. */
static void unpack_plain(int32_t format, const uint8_t *p, int64_t n, float *dst) {
	if (format == VAPP_F32) {
		memcpy(dst, p, n * PANEL * sizeof *dst);
		return;
	}
	for (int64_t k = 0; k < n; k++, dst += PANEL)
		for (int lane = 0; lane < PANEL; lane++)
			dst[lane] = format == VAPP_F16 ? half_float(load16(p + k * 64 + lane * 2))
			                               : bf16_float(load16(p + k / 2 * 128 + lane * 4 + k % 2 * 2));
}

static void unpack_q4_1(int32_t format, const uint8_t *p, int64_t n, float *dst) {
	q4_head h[PANEL];
	for (int64_t k = 0; k < n; k++, dst += PANEL) {
		if (k % 32 == 0) {
			p += k ? panel_k(VAPP_Q4_1, 32) : 0;
			for (int lane = 0; lane < PANEL; lane++) h[lane] = q4_head_at(format, p, lane);
		}
		for (int lane = 0; lane < PANEL; lane++) dst[lane] = (float)nibble(p + 128, k % 32, lane) * h[lane].d + h[lane].m;
	}
}

/* unpack_groups multiplies with the scales of the groups, from `scales` on. */
static void unpack_groups(int32_t format, const uint8_t *p, const uint8_t *scales, int64_t n, float *dst) {
	int64_t group = group_k(format);
	float d[PANEL];
	for (int64_t k = 0; k < n; k++, dst += PANEL) {
		const uint8_t *at = in_nvfp4(format) ? nvfp4_scales(scales, k) : scales + k / group * group_step(format);
		if (k % group == 0)
			for (int lane = 0; lane < PANEL; lane++) d[lane] = group_scale(format, at, lane);
		for (int lane = 0; lane < PANEL; lane++) dst[lane] = element(format, p, k, lane) * d[lane];
	}
}

static void unpack_fields(int32_t format, const uint8_t *p, int64_t n, float *dst) {
	blocks b = blocks_of(format);
	const float *table = table_of(format);
	blocks_place at[PANEL];
	for (int64_t k = 0; k < n; k++, dst += PANEL)
		for (int lane = 0; lane < PANEL; lane++) {
			if (k % 16 == 0) at[lane] = place_of(b, p, k, lane);
			dst[lane] = number(b, table, at[lane], k % 32, lane);
		}
}

static void unpack(int32_t format, const uint8_t *p, const uint8_t *scales, int64_t n, float *dst) {
	if (group_k(format))
		unpack_groups(format, p, scales, n, dst);
	else if (format == VAPP_F32 || format == VAPP_F16 || format == VAPP_BF16)
		unpack_plain(format, p, n, dst);
	else if (in_blocks(format))
		unpack_fields(format, p, n, dst);
	else
		unpack_q4_1(format, p, n, dst);
}

/* multiply adds n products to each of the 32 sums. All rows use this one loop. */
static __attribute__((noinline)) void multiply(const float *w, const float *x, int64_t n, float *out) {
	float sum[PANEL];
	memcpy(sum, out, sizeof sum);
	for (int64_t k = 0; k < n; k++, w += PANEL)
		for (int lane = 0; lane < PANEL; lane++) sum[lane] += w[lane] * x[k];
	memcpy(out, sum, sizeof sum);
}

static void panel_rows(const vapp_linear *a, int64_t panel, int64_t row0, int64_t row1) {
	const uint8_t *p = panel_at(a, panel);
	int64_t o0 = panel * PANEL, lanes = a->out - o0 < PANEL ? a->out - o0 : PANEL;
	float *block = a->work, sum[PANEL];
	for (int64_t k0 = 0; k0 < a->in; k0 += KBLOCK) {
		int64_t n = a->in - k0 < KBLOCK ? a->in - k0 : KBLOCK;
		unpack(a->format, p + panel_k(a->format, k0), scales_at(a, panel, k0), n, block);
		for (int64_t r = row0; r < row1; r++) {
			float *y = a->y + r * a->ldy + o0;
			memset(sum, 0, sizeof sum);
			if (k0 > 0) memcpy(sum, y, lanes * sizeof *y);
			multiply(block, a->x + r * a->ldx + k0, n, sum);
			if (k0 + n == a->in && in_nvfp4(a->format))
				for (int64_t l = 0; l < lanes; l++) sum[l] *= output_scale(a->format, outputs_at(a, panel), (int)l);
			if (k0 + n == a->in && a->bias)
				for (int64_t l = 0; l < lanes; l++) sum[l] += a->bias[o0 + l];
			memcpy(y, sum, lanes * sizeof *y);
		}
	}
}

static void run(const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, 1, part, parts);
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		int64_t c = u % g.chunks;
		panel_rows(a, u / g.chunks, g.tiles * c / g.chunks, g.tiles * (c + 1) / g.chunks);
	}
}

static const vapp_linear_kernel kernel = {NULL, 0, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_generic(int format) {
	(void)format;
	return &kernel;
}
