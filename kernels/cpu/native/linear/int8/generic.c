/* generic.c: Linear on int8 activations in portable C, and unpacking of a row of weights. */
#include "int8.h"

#define quantize_group int8_quantize
#include "body.h"

/* field returns the bits of k, below 32, in fields of `bits` bits (blocks.h). */
static int field(const uint8_t *fields, int bits, int k, int lane) {
	uint32_t word;
	int per = 32 / bits;
	memcpy(&word, fields + k / per * 128 + lane * 4, 4);
	return (int)(word >> (k % per * bits) & ((1u << bits) - 1));
}

/* code returns the code of k, below 32, of a group. */
static int code(int32_t format, const uint8_t *p, int k, int lane) {
	uint32_t word;
	if (format == VAPP_Q8_0) return p[k / 4 * 128 + lane * 4 + k % 4];
	if (format == VAPP_Q4_0 || q4_kernel(format) == VAPP_Q4_1) {
		memcpy(&word, p + k / 8 * 128 + lane * 4, 4);
		return (int)(word >> nibble_at(k % 8) & 15);
	}
	blocks b = blocks_of(format);
	int c = field(p, b.low, k, lane);
	if (!b.high) return c;
	int vector = k / 8 * 2 + k % 2, each = 8 / b.high;
	int high = p[128 * b.low + vector / each * 128 + lane * 4 + k % 8 / 2] >> (vector % each * b.high);
	return c | (high & ((1 << b.high) - 1)) << b.low;
}

/* scale_of returns the scale of a lane for half h of a group; the product is exact. */
static float scale_of(int8_place at, int lane, int h) {
	if (at.zeros) return q4_head_at(VAPP_I4, at.d, lane).d;
	float d = half_float(load16(at.d + lane * 2));
	return at.subs ? d * (float)(int8_t)at.subs[h * PANEL + lane] : d;
}

static float least_of(int8_codes c, int8_place at, int lane) {
	if (at.zeros) return q4_head_at(VAPP_I4, at.d, lane).m;
	float m = half_float(load16(at.m + lane * 2));
	return at.subs ? m * -(float)(int8_t)at.subs[c.subs * PANEL + lane] : m;
}

static float dword_float(const int32_t *x) {
	float f;
	memcpy(&f, x, 4);
	return f;
}

/* row_group adds a group's products to y; x is a row, in tiles of `tile` rows. */
static float row_group(int8_codes c, const uint8_t *codes, int8_place at, const int32_t *x, int tile, int lane, float y) {
	int8_t q[GROUP];
	for (int i = 0; i < 8; i++) memcpy(q + 4 * i, x + i * tile, 4);
	for (int h = 0; h < c.subs; h++) {
		int32_t sum = x[(X_LESS + h) * tile];
		for (int i = h * GROUP / c.subs; i < (h + 1) * GROUP / c.subs; i++) sum += codes[i] * q[i];
		y = __builtin_fmaf((float)sum, scale_of(at, lane, h) * dword_float(x + X_SCALE * tile), y);
	}
	return c.least ? __builtin_fmaf(least_of(c, at, lane), dword_float(x + X_SUM * tile), y) : y;
}

static int in_place(int32_t format, int64_t tiles) {
	(void)format, (void)tiles;
	return 1;
}

static const uint8_t *unpack_codes(int32_t format, const int8_step *s, uint8_t *to) {
	(void)format, (void)s, (void)to;
	return NULL;
}

static void int8_steps(int32_t format, const int8_step *s, int rows, int tile) {
	const int8_codes c = int8_codes_of(format);
	uint8_t codes[GROUP];
	for (int lane = 0; lane < PANEL && lane < s->lanes; lane++) {
		const int32_t *x = s->x;
		float y[INT8_TILE] = {0};
		for (int r = 0; r < rows && s->g0; r++) y[r] = s->y[r * s->ldy + lane];
		for (int64_t g = s->g0; g < s->g1; g++, x += X_DWORDS * tile) {
			int8_place at = int8_place_at(q4_kernel(format), s->zeros, s->panel, g);
			for (int k = 0; k < GROUP; k++) codes[k] = (uint8_t)code(format, at.codes, k / 8 * 8 + c.order[k % 8], lane);
			for (int r = 0; r < rows; r++) y[r] = row_group(c, codes, at, x + r, tile, lane, y[r]);
		}
		for (int r = 0; r < rows; r++) s->y[r * s->ldy + lane] = s->bias ? y[r] + s->bias[lane] : y[r];
	}
}

void vapp_linear_row_int8(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst) {
	const vapp_linear a = {.w = w, .format = format, .in = in, .out = out};
	const int8_codes c = int8_codes_of(format);
	for (int64_t k = 0; k < in; k++) {
		int8_place at = int8_place_at(q4_kernel(format), with_zeros(format), panel_at(&a, r / PANEL), k / GROUP);
		int lane = r % PANEL, h = c.subs == 2 ? (int)(k % GROUP / 16) : 0;
		dst[k] = (float)(code(format, at.codes, (int)(k % GROUP), lane) - c.zero) * scale_of(at, lane, h);
		if (c.least) dst[k] += least_of(c, at, lane);
	}
}

const vapp_linear_kernel *vapp_linear_int8_generic(int format) { return int8_format(format) ? &kernel : NULL; }
