/* load.h: blocks of keys as floats, when many rows use them. */
#ifndef VAPP_CPU_ATTENTION_LOAD_H
#define VAPP_CPU_ATTENTION_LOAD_H
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"
#include "tile.h"

/* IN_FORMAT calls f with the pages' format as a constant, so that loops contain no switch. */
#define IN_FORMAT(f, format, ...) \
	switch (format) { \
	case VAPP_F16: f(VAPP_F16, __VA_ARGS__); break; \
	case VAPP_BF16: f(VAPP_BF16, __VA_ARGS__); break; \
	case VAPP_F8_E4M3: f(VAPP_F8_E4M3, __VA_ARGS__); break; \
	case VAPP_F8_E5M2: f(VAPP_F8_E5M2, __VA_ARGS__); break; \
	default: f(VAPP_F32, __VA_ARGS__); \
	}

/* widen converts n rows of dim numbers, step bytes apart, to rows of wide floats. */
INLINE void widen(int32_t format, const uint8_t *src, int64_t step, int64_t n, int64_t dim, float *dst, int64_t wide)
{
	int64_t e = vapp_element(format);
	for (; n > 0; n--, src += step, dst += wide) {
		int64_t i = 0;
		for (; i + VW <= dim; i += VW)
			vf_store(dst + i, vf_widen(format, src + i * e));
		if (i < dim) {
			uint8_t rest[4 * VW] = {0};
			memcpy(rest, src + i * e, (size_t)((dim - i) * e));
			vf_put(dst + i, vf_widen(format, rest), dim - i);
		}
	}
}

static void widen_rows(const tile *t, const uint8_t *src, int64_t step, int64_t n, int64_t dim, float *dst, int64_t wide)
{
	IN_FORMAT(widen, t->a->pages.format, src, step, n, dim, dst, wide)
}

/* columns converts n dimensions of a block of keys, step bytes apart, to floats. */
INLINE void columns(int32_t format, const uint8_t *k, int64_t n, int64_t step, float *dst)
{
	for (int64_t i = 0; i < n; i++, k += step)
		for (int j = 0; j < NV; j++)
			vf_store(dst + i * BLOCK + j * VW, vf_widen(format, k + j * VW * vapp_element(format)));
}

/* rebuild computes the dimensions that are not stored of the key in column j, from its value. */
static void rebuild(const tile *t, const uint8_t *value, int32_t j)
{
	int64_t stored = t->a->pages.key_dim / 2, half = t->dim / 2;
	float v[VAPP_ATTENTION_DIM];
	widen_rows(t, value, 0, 1, t->dim, v, 0);
	for (int64_t h = 0; h < t->dim; h += half)
		for (int64_t i = h + stored; i < h + half; i++)
			t->k[i * BLOCK + j] = v[i] * t->a->rebuild[i];
}

/* transpose stores the transpose of the VW rows of r at dst, in rows of BLOCK floats. */
INLINE void transpose(const vf *r, float *dst)
{
#if VAPP_VECTOR == 512
	vf a[16], b[16];
	for (int i = 0; i < 16; i += 2)
		a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]), a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
	for (int i = 0; i < 16; i += 4)
		for (int h = 0; h < 2; h++) {
			__m512d x = _mm512_castps_pd(a[i + h]), y = _mm512_castps_pd(a[i + h + 2]);
			b[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
			b[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
		}
	for (int c = 0; c < 4; c++) { /* lane l of b[4·i+c] is column 4·l+c of the rows from 4·i on */
		vf even0 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88), even1 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
		vf odd0 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd), odd1 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
		vf_store(dst + c * BLOCK, _mm512_shuffle_f32x4(even0, even1, 0x88));
		vf_store(dst + (4 + c) * BLOCK, _mm512_shuffle_f32x4(odd0, odd1, 0x88));
		vf_store(dst + (8 + c) * BLOCK, _mm512_shuffle_f32x4(even0, even1, 0xdd));
		vf_store(dst + (12 + c) * BLOCK, _mm512_shuffle_f32x4(odd0, odd1, 0xdd));
	}
#elif VAPP_VECTOR == 256
	for (int h = 0; h < 2; h++) { /* columns 2·h and 2·h+1, and the columns 4 after them */
		vf b[4];
		for (int i = 0; i < 4; i++)
			b[i] = h ? _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]) : _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		for (int c = 0; c < 2; c++) {
			vf x = c ? _mm256_shuffle_ps(b[0], b[1], 0xee) : _mm256_shuffle_ps(b[0], b[1], 0x44);
			vf y = c ? _mm256_shuffle_ps(b[2], b[3], 0xee) : _mm256_shuffle_ps(b[2], b[3], 0x44);
			vf_store(dst + (2 * h + c) * BLOCK, _mm256_permute2f128_ps(x, y, 0x20));
			vf_store(dst + (4 + 2 * h + c) * BLOCK, _mm256_permute2f128_ps(x, y, 0x31));
		}
	}
#else
	for (int i = 0; i < VW; i++)
		for (int c = 0; c < VW; c++)
			dst[c * BLOCK + i] = r[i][c];
#endif
}

/* transpose_rows fills dim rows of k with a block of n rows of numbers, step bytes apart; the rest
 * becomes 0. */
INLINE void transpose_rows(int32_t format, const uint8_t *rows, int64_t step, int64_t n, int64_t dim, float *k)
{
	for (int64_t d = 0; d < dim; d += VW)
		for (int64_t j = 0; j < BLOCK; j += VW) {
			vf r[VW];
			for (int64_t i = 0; i < VW; i++)
				r[i] = j + i < n ? vf_widen(format, rows + (j + i) * step + d * vapp_element(format)) : vf_set(0);
			transpose(r, k + d * BLOCK + j);
		}
}

/* set_column sets column j of dim rows of k to numbers of a row. */
static void set_column(const tile *t, const uint8_t *numbers, int64_t dim, int32_t j, float *k)
{
	float row[VAPP_ATTENTION_DIM];
	widen_rows(t, numbers, 0, 1, dim, row, 0);
	for (int64_t i = 0; i < dim; i++)
		k[i * BLOCK + j] = row[i];
}

/* set_rows is transpose_rows for any dim. */
static void set_rows(const tile *t, const uint8_t *rows, int64_t step, int32_t n, int64_t dim, float *k)
{
	if (dim % VW == 0) {
		IN_FORMAT(transpose_rows, t->a->pages.format, rows, step, n, dim, k)
		return;
	}
	for (int32_t j = 0; j < n; j++)
		set_column(t, rows + j * step, dim, j, k);
}

/* load_stored fills t->k with what pages store of n keys in block i of the view. */
static void load_stored(const tile *t, int32_t i, int32_t n)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format), d = p->key_dim, step = p->block * e;
	const uint8_t *k = t->now.k[i], *v = t->now.v[i];
	if (t->a->latent)
		set_rows(t, v, t->dim * e, n, t->dim, t->k);
	if (!t->a->rebuild) {
		IN_FORMAT(columns, p->format, k, d, step, t->a->latent ? t->k + t->dim * BLOCK : t->k)
		return;
	}
	IN_FORMAT(columns, p->format, k, d / 2, step, t->k)
	IN_FORMAT(columns, p->format, k + d / 2 * step, d / 2, step, t->k + t->dim / 2 * BLOCK)
	for (int32_t j = 0; j < n; j++, v += t->dim * e)
		rebuild(t, v, j);
}

/* load_own fills columns of t->k with this step's keys of the positions [pos, end), the first one
 * at column j. */
static void load_own(const tile *t, int32_t pos, int32_t end, int32_t j)
{
	float *rest = t->a->latent ? t->k + t->dim * BLOCK : t->k;
	for (; pos < end; pos++, j++) {
		if (t->a->latent)
			set_column(t, own_value_of(t, pos), t->dim, j, t->k);
		set_column(t, own_key_of(t, pos), own_dim(t), j, rest);
		if (t->a->rebuild)
			rebuild(t, own_value_of(t, pos), j);
	}
}

/* load_keys fills t->k with the keys of positions [at, end), at most a block. */
static void load_keys(const tile *t, int32_t at, int32_t end)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format) * p->kv_heads;
	int32_t fresh = within(t->history, at, end);
	if (at < fresh) {
		load_stored(t, (at - t->now.at) / BLOCK, fresh - at);
		load_own(t, fresh, end, fresh - at);
		return;
	}
	if (t->a->latent)
		set_rows(t, own_value_of(t, at), t->dim * e, end - at, t->dim, t->k);
	set_rows(t, own_key_of(t, at), own_dim(t) * e, end - at, own_dim(t), t->a->latent ? t->k + t->dim * BLOCK : t->k);
	for (int32_t pos = at; t->a->rebuild && pos < end; pos++)
		rebuild(t, own_value_of(t, pos), pos - at);
}

#endif
