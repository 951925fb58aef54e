/* amx_quant_amd64.c: the part of amx_quant.h that needs no tiles: unpacking, x, and few rows. */
#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")))
#define TILE 1 /* for unpack.h, which multiplies nothing here */
#define PAIR 1
#include "vec512.h"

#include "amx_quant_unpack.h"

enum { NEAR = 2048 /* bytes that few rows prefetch ahead */ };

/* flush makes denormals zero, as tiles do, and returns what restore needs. */
FN_INLINE unsigned flush(void) {
	unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | 0x8040);
	return csr;
}

/* last_codes copies the elements of a last k tile of 8-bit floats that is not full, and returns
 * the copy, padded with zeros. */
FN static __attribute__((noinline)) const uint8_t *last_codes(const vapp_linear *a, const uint8_t *codes, uint8_t *copy) {
	memset(copy, 0, TILE_K * PANEL);
	memcpy(copy, codes, panel_k(a->format, a->in % TILE_K));
	return copy;
}

/* tile_bytes returns the most bytes of a k tile, with its scales. */
INLINE int64_t tile_bytes(const int format) {
	return format == VAPP_I8 ? 1088 : blocks_of(format).subs ? panel_k(format, 4 * TILE_K) / 4 : panel_k(format, TILE_K);
}

FN_INLINE void fetch(const uint8_t *p, int64_t bytes) {
	for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* ---- unpacking ---- */

FN_INLINE void unpack_tile(const quant_panel *p, const int format, const int outside, const quant_place *at, const quant_table *t, int slot,
                           quant_ring *to) {
	const int halves = halves_of(format);
#pragma GCC unroll 1
	for (int v = 0; v < WIDE; v++) {
		uint16_t *pairs = to->pairs[slot][v];
		for (int sub = 0; sub < halves; sub++) {
			quant_scale s = scale_of(p, format, outside, at, 0, sub, v);
			if (outside) {
				v_store(to->d[slot] + v * LANES, s.d);
				if (quant_minimum(format)) v_store(to->m[slot] + v * LANES, s.m);
			}
			for (int g = 4 / halves * sub; g < 4 / halves * (sub + 1); g++, pairs += 4 * 2 * LANES) {
				quant_fields f = fields_at(format, at->codes, g, v);
#pragma GCC unroll 4
				for (int i = 0; i < 4; i++) {
					dwords w;
					if (outside && in_nibbles(format)) {
						w = _mm512_permutexvar_epi16(moved(f.low, -4 * i), t->words);
					} else {
						vec even = number_at(p, format, t, &f, at->codes, g, 2 * i, v), odd = number_at(p, format, t, &f, at->codes, g, 2 * i + 1, v);
						w = pair_of(weight_of(format, outside, even, &s, 0), weight_of(format, outside, odd, &s, 0));
					}
					_mm512_store_si512(pairs + i * 2 * LANES, w);
				}
			}
		}
	}
}

FN_INLINE void unpack_tiles(const vapp_linear *a, const int format, const int outside, int64_t panel, int64_t t, int64_t n, int near, quant_ring *to) {
	const quant_table table = table_of(a, format, outside);
	uint8_t copy[TILE_K * PANEL];
	quant_panel p;
	open_panel(a, panel, &p);
	for (int64_t end = t + n; t < end; t++) {
		quant_place at = place_of(&p, format, t);
		if (near) fetch(at.codes + NEAR, tile_bytes(format));
		if (format == VAPP_F8_E4M3 && (t + 1) * TILE_K > a->in) at.codes = last_codes(a, at.codes, copy);
		unpack_tile(&p, format, outside, &at, &table, (int)(t % KTILES), to);
	}
}

/* ---- x ---- */

FN_INLINE __m512i x_pairs(const vapp_linear *a, int64_t row, int64_t k) {
	const float *x = a->x + row * a->ldx + k;
	return (__m512i)_mm512_cvtne2ps_pbh(v_load_some(x + LANES, a->in - k - LANES), v_load_some(x, a->in - k));
}

FN_INLINE float sum_of(__m512i pairs) { return _mm512_reduce_add_ps(v_add(v_even(pairs), v_odd(pairs))); }

FN void vapp_quant_prepare(const vapp_linear *a, int outside, int part, int parts) {
	int64_t ks = quant_tiles(a), units = ((int64_t)a->rows + TILE_ROWS - 1) / TILE_ROWS * ks;
	unsigned csr = flush();
	for (int64_t u = units * part / parts; u < units * (part + 1) / parts; u++) {
		int64_t row = u / ks * TILE_ROWS, k = u % ks;
		uint8_t *tile = (uint8_t *)a->shared + u / ks * quant_x_bytes(a, outside);
		float *sums = (float *)(tile + ks * 1024 + k * 64);
		for (int64_t r = 0; r < TILE_ROWS && row + r < a->rows; r++) {
			__m512i pairs = x_pairs(a, row + r, k * TILE_K);
			_mm512_storeu_si512(tile + k * 1024 + r * 64, pairs);
			if (outside) sums[r] = sum_of(pairs);
		}
	}
	_mm_setcsr(csr);
}

/* spread_rows writes a->rows rows of x as floats [k][rows], and the sums of 32 k's [k/32][rows]. */
FN static void spread_rows(const vapp_linear *a, float *x, float *sums) {
	for (int64_t k = 0; k < quant_tiles(a); k++)
		for (int r = 0; r < a->rows; r++) {
			uint32_t pairs[LANES];
			__m512i q = x_pairs(a, r, k * TILE_K);
			sums[k * a->rows + r] = sum_of(q);
			_mm512_storeu_si512(pairs, q);
			for (int i = 0; i < LANES; i++) {
				uint32_t two[2] = {pairs[i] << 16, pairs[i] & 0xffff0000};
				memcpy(x + (k * TILE_K + 2 * i) * a->rows + r, two, 4);
				memcpy(x + (k * TILE_K + 2 * i + 1) * a->rows + r, two + 1, 4);
			}
		}
}

/* ---- few rows ---- */

/* put_rows scales the totals of a panel, if they still are to be, adds the bias and writes them. */
FN static __attribute__((noinline)) void put_rows(const vapp_linear *a, int outside, int64_t panel, int rows, const vec total[][2 * WIDE]) {
	for (int v = 0; v < WIDE; v++) {
		int64_t output = panel * PANEL + v * LANES, lanes = a->out - output;
		vec d = outside || !scaled_last(a->format) ? v_set(1) : v_sum_scale(a, panel, v * LANES);
		vec bias = a->bias ? v_load_some(a->bias + output, lanes) : v_set(0);
		for (int r = 0; r < rows; r++) {
			vec sum = v_mul(total[r][v], d);
			v_store_some(a->y + r * a->ldy + output, lanes, a->bias ? v_add(sum, bias) : sum);
		}
	}
}

FN_INLINE void few_rows(const vapp_linear *a, const int format, const int outside, const int rows, const float *x, const float *sums, int64_t panel,
                        int64_t second) {
	const int nv = rows == 1 ? 2 * WIDE : WIDE, halves = halves_of(format);
	const int64_t ks = quant_tiles(a);
	const quant_table t = table_of(a, format, outside);
	uint8_t copies[2][TILE_K * PANEL];
	vec total[QUANT_FEW][2 * WIDE];
	quant_panel p;
	open_panel(a, panel, &p);
	const int64_t far = (second - panel) * p.far;
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) total[r][v] = v_set(0);
	for (int64_t k = 0; k < ks; k++, sums += rows) {
		vec even[QUANT_FEW][2 * WIDE], odd[QUANT_FEW][2 * WIDE];
		quant_scale s[2 * WIDE];
		quant_place at = place_of(&p, format, k);
		const uint8_t *codes[2] = {at.codes, at.codes + far};
		fetch(codes[0] + NEAR, tile_bytes(format));
		if (nv > WIDE) fetch(codes[1] + NEAR, tile_bytes(format));
		if (format == VAPP_F8_E4M3 && (k + 1) * TILE_K > a->in)
			for (int i = 0; i < nv / WIDE; i++) codes[i] = last_codes(a, codes[i], copies[i]);
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) even[r][v] = odd[r][v] = v_set(0);
		for (int sub = 0; sub < halves; sub++) {
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) s[v] = scale_of(&p, format, outside, &at, v / WIDE * far, sub, v % WIDE);
			for (int g = 4 / halves * sub; g < 4 / halves * (sub + 1); g++, x += 8 * rows) {
				quant_fields f[2 * WIDE];
#pragma GCC unroll 4
				for (int v = 0; v < nv; v++) f[v] = fields_at(format, codes[v / WIDE], g, v % WIDE);
#pragma GCC unroll 8
				for (int j = 0; j < 8; j++)
#pragma GCC unroll 4
					for (int v = 0; v < nv; v++) {
						vec w = weight_of(format, outside, number_at(&p, format, &t, &f[v], codes[v / WIDE], g, j, v % WIDE), &s[v], 1);
#pragma GCC unroll 4
						for (int r = 0; r < rows; r++) {
							vec *sum = j % 2 ? &odd[r][v] : &even[r][v];
							*sum = v_fma(w, v_set(x[j * rows + r]), *sum);
						}
					}
			}
		}
#pragma GCC unroll 4
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
			for (int v = 0; v < nv; v++) {
				vec sum = v_add(even[r][v], odd[r][v]);
				total[r][v] = outside ? v_fma(sum, s[v].d, total[r][v]) : v_add(total[r][v], sum);
				if (outside && quant_minimum(format)) total[r][v] = v_fma(v_set(sums[r]), s[v].m, total[r][v]);
			}
	}
	put_rows(a, outside, panel, rows, total);
	if (nv > WIDE && second != panel) {
		vec other[1][2 * WIDE] = {{total[0][WIDE], total[0][WIDE + 1]}};
		put_rows(a, outside, second, 1, other);
	}
}

FN void vapp_quant_few(const quant_kernel *q, const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, QUANT_FEW, part, parts);
	int64_t u = linear_unit(a, &g);
	if (u < 0) return;
	unsigned csr = flush();
	float *x = a->work, *sums = x + quant_tiles(a) * TILE_K * a->rows;
	spread_rows(a, x, sums);
	for (; u >= 0; u = linear_unit(a, &g)) {
		int64_t second = a->rows == 1 && g.next < g.last ? g.next++ : u;
		q->few[a->rows](a, x, sums, u, second);
	}
	_mm_setcsr(csr);
}

/* ---- instances ---- */

#define UNPACK(name, format, outside) \
	FN static void unpack_##name(const vapp_linear *a, int64_t panel, int64_t t, int64_t n, int near, quant_ring *to) { \
		unpack_tiles(a, format, outside, panel, t, n, near, to); \
	}
#define FEW(name, format, outside, rows) \
	FN static void few_##rows##_##name(const vapp_linear *a, const float *x, const float *sums, int64_t panel, int64_t second) { \
		few_rows(a, format, outside, rows, x, sums, panel, second); \
	}
#define KERNEL(name, format, outside) \
	UNPACK(name, format, outside) \
	FEW(name, format, outside, 1) \
	FEW(name, format, outside, 2) \
	static const quant_kernel name = {unpack_##name, {NULL, few_1_##name, few_2_##name}, 2};
#define KERNEL_4(name, format, outside) \
	UNPACK(name, format, outside) \
	FEW(name, format, outside, 1) \
	FEW(name, format, outside, 2) \
	FEW(name, format, outside, 3) \
	FEW(name, format, outside, 4) \
	static const quant_kernel name = {unpack_##name, {NULL, few_1_##name, few_2_##name, few_3_##name, few_4_##name}, QUANT_FEW};

KERNEL_4(i8, VAPP_I8, 0)
KERNEL(q4_0, VAPP_Q4_0, 0)
KERNEL(q4_1, VAPP_Q4_1, 0)
KERNEL(mxfp4, VAPP_MXFP4, 0)
KERNEL(nvfp4, VAPP_NVFP4, 0)
KERNEL(f8, VAPP_F8_E4M3, 0)
KERNEL(iq4_nl, VAPP_IQ4_NL, 0)
KERNEL(iq4_xs, VAPP_IQ4_XS, 0)
KERNEL(expanded, VAPP_EXPANDED, 0)
KERNEL(q2_k, VAPP_Q2_K, 0)
KERNEL(q3_k, VAPP_Q3_K, 0)
KERNEL(q4_k, VAPP_Q4_K, 0)
KERNEL(q5_0, VAPP_Q5_0, 0)
KERNEL(q5_1, VAPP_Q5_1, 0)
KERNEL(q5_k, VAPP_Q5_K, 0)
KERNEL(q6_k, VAPP_Q6_K, 0)

KERNEL_4(i8_outside, VAPP_I8, 1)
KERNEL(q4_0_outside, VAPP_Q4_0, 1)
KERNEL(q4_1_outside, VAPP_Q4_1, 1)
KERNEL(mxfp4_outside, VAPP_MXFP4, 1)
KERNEL(iq4_nl_outside, VAPP_IQ4_NL, 1)
KERNEL(iq4_xs_outside, VAPP_IQ4_XS, 1)
KERNEL(q4_k_outside, VAPP_Q4_K, 1)

const quant_kernel *vapp_quant_kernel(int format, int outside) {
	switch (q4_kernel(format % VAPP_SCALES)) {
	case VAPP_Q8_0: return outside ? &i8_outside : &i8;
	case VAPP_Q4_0: return outside ? &q4_0_outside : &q4_0;
	case VAPP_Q4_1: return outside ? &q4_1_outside : &q4_1;
	case VAPP_MXFP4: return outside ? &mxfp4_outside : &mxfp4;
	case VAPP_IQ4_XS: return outside ? &iq4_xs_outside : &iq4_xs;
	case VAPP_IQ4_NL: return outside ? &iq4_nl_outside : &iq4_nl;
	case VAPP_Q4_K: return outside ? &q4_k_outside : &q4_k;
	}
	if (outside) return NULL;
	switch (format % VAPP_SCALES) {
	case VAPP_I8: return &i8;
	case VAPP_NVFP4: return &nvfp4;
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2: return &f8;
	case VAPP_EXPANDED: return &expanded;
	case VAPP_Q2_K: return &q2_k;
	case VAPP_Q3_K: return &q3_k;
	case VAPP_Q5_0: return &q5_0;
	case VAPP_Q5_1: return &q5_1;
	case VAPP_Q5_K: return &q5_k;
	case VAPP_Q6_K: return &q6_k;
	}
	return NULL;
}
