/* adapt.h: low-rank adapters. A row with slot s gets y += b[s]·(a[s]·x), in two phases: adapt_down
 * computes mid = a·x, adapt_up adds b·mid. Rows are taken by slot, so that a matrix is read once for
 * all of its rows. Every number has a sum of its own in a fixed order: neither other rows nor the
 * number of parts change its bits. */
#include <stdint.h>
#include <string.h>

#include "../shared/kernels.h"
#include "../shared/linear.h"
#include "../shared/vec.h"

#ifndef VAPP_CPU_ADAPT_ROWS
#define VAPP_CPU_ADAPT_ROWS 64 /* rows that are searched for a slot at a time */
#endif

/* adapt_weights loads n ≤ VW weights; those behind are 0. */
static inline __attribute__((always_inline)) vf adapt_weights(int32_t format, const uint8_t *p, int64_t n)
{
	if (n >= VW)
		return vf_widen(format, p);
	uint8_t b[4 * VW] = {0};
	memcpy(b, p, (size_t)(n * vapp_element(format)));
	return vf_widen(format, b);
}

/* adapt_rows writes the rows of a chunk that have the slot to list and returns their number. */
static inline int adapt_rows(const vapp_adapt *a, int64_t from, int64_t to, int32_t slot, int32_t *list)
{
	int n = 0;
	for (int64_t r = from; r < to; r++)
		if (a->slots[a->rows ? a->rows[r] : r] == slot)
			list[n++] = (int32_t)r;
	return n;
}

/* adapt_dots sets out[r][k] to w[k]·x[r] for rows ≤ 2 and wide ≤ 4, and prefetches the weights that
 * come `ahead` bytes behind w. */
static inline __attribute__((always_inline)) void adapt_dots(int32_t format, int rows, int wide, const float *const *x,
	const uint8_t *w, int64_t in, int64_t ahead, float *const *out)
{
	int64_t size = vapp_element(format);
	vf acc[2][4];
	for (int r = 0; r < rows; r++)
		for (int k = 0; k < wide; k++)
			acc[r][k] = vf_set(0);
	for (int64_t i = 0; i < in; i += VW) {
		vf v[2];
		for (int r = 0; r < rows; r++)
			v[r] = vf_head(x[r] + i, in - i);
		for (int k = 0; k < wide; k++) {
			const uint8_t *p = w + (k * in + i) * size;
			__builtin_prefetch(p + ahead);
			vf u = adapt_weights(format, p, in - i);
			for (int r = 0; r < rows; r++)
				acc[r][k] = vf_fma(u, v[r], acc[r][k]);
		}
	}
	for (int r = 0; r < rows; r++)
		for (int k = 0; k < wide; k++)
			out[r][k] = vf_sum(acc[r][k]);
}

static inline __attribute__((always_inline)) void adapt_down_of(int32_t format, const vapp_adapt *a, const vapp_call *c)
{
	int64_t n = c->rows[a->symbol], mids = (int64_t)a->modules * a->rank, groups = (mids + 3) / 4;
	int64_t chunks = (n + VAPP_CPU_ADAPT_ROWS - 1) / VAPP_CPU_ADAPT_ROWS, from, to;
	vapp_share(a->num_slots * groups * chunks, c, &from, &to);
	for (int64_t u = from; u < to; u++) {
		int64_t slot = u / (groups * chunks), j = u / chunks % groups * 4, first = u % chunks * VAPP_CPU_ADAPT_ROWS;
		int32_t list[VAPP_CPU_ADAPT_ROWS];
		int count = adapt_rows(a, first, first + VAPP_CPU_ADAPT_ROWS < n ? first + VAPP_CPU_ADAPT_ROWS : n, (int32_t)slot, list);
		int64_t size = vapp_element(format), ahead = 4 * a->in * size; /* the next unit's */
		const uint8_t *w = (const uint8_t *)a->a + (slot * mids + j) * a->in * size;
		for (int i = 0; i < count; i += 2) {
			int second = i + 1 < count ? list[i + 1] : list[i];
			const float *x[2] = {a->x + (int64_t)list[i] * a->in, a->x + (int64_t)second * a->in};
			float *out[2] = {a->mid + list[i] * mids + j, a->mid + second * mids + j};
			if (mids - j >= 4) {
				if (i + 1 < count)
					adapt_dots(format, 2, 4, x, w, a->in, ahead, out);
				else
					adapt_dots(format, 1, 4, x, w, a->in, ahead, out);
				continue;
			}
			for (int k = 0; k < mids - j; k++)
				for (int r = 0; r < 2; r++) {
					float *one = out[r] + k;
					adapt_dots(format, 1, 1, &x[r], w + k * a->in * vapp_element(format), a->in, 0, &one);
				}
		}
	}
}

/* adapt_columns adds b·mid to n ≤ wide·VW columns of rows ≤ 2. */
static inline __attribute__((always_inline)) void adapt_columns(int32_t format, int rows, int wide, const float *const *mid,
	const uint8_t *w, int64_t stride, int32_t rank, int64_t n, float *const *y)
{
	int64_t size = vapp_element(format);
	vf acc[2][4];
	for (int r = 0; r < rows; r++)
		for (int k = 0; k < wide; k++)
			acc[r][k] = vf_set(0);
	for (int32_t j = 0; j < rank; j++, w += stride * size)
		for (int k = 0; k < wide; k++) {
			__builtin_prefetch(w + (wide + k) * VW * size); /* the next unit's */
			vf u = adapt_weights(format, w + k * VW * size, n - k * VW);
			for (int r = 0; r < rows; r++)
				acc[r][k] = vf_fma(u, vf_set(mid[r][j]), acc[r][k]);
		}
	for (int r = 0; r < rows; r++)
		for (int k = 0; k < wide; k++)
			vf_put(y[r] + k * VW, vf_head(y[r] + k * VW, n - k * VW) + acc[r][k], n - k * VW);
}

static inline __attribute__((always_inline)) void adapt_up_of(int32_t format, const vapp_adapt *a, const vapp_call *c)
{
	int64_t n = c->rows[a->symbol], mids = (int64_t)a->modules * a->rank, blocks = (a->out + 4 * VW - 1) / (4 * VW);
	int64_t chunks = (n + VAPP_CPU_ADAPT_ROWS - 1) / VAPP_CPU_ADAPT_ROWS, from, to;
	vapp_share(a->num_slots * blocks * chunks, c, &from, &to);
	for (int64_t u = from; u < to; u++) {
		int64_t slot = u / (blocks * chunks), col = u / chunks % blocks * 4 * VW, first = u % chunks * VAPP_CPU_ADAPT_ROWS;
		int64_t last = col + 4 * VW < a->out ? col + 4 * VW : a->out;
		int32_t list[VAPP_CPU_ADAPT_ROWS];
		int count = adapt_rows(a, first, first + VAPP_CPU_ADAPT_ROWS < n ? first + VAPP_CPU_ADAPT_ROWS : n, (int32_t)slot, list);
		for (int m = 0; count > 0 && m < a->modules; m++) {
			int64_t begin = m ? a->ends[m - 1] : 0, end = a->ends[m] < last ? a->ends[m] : last;
			for (int64_t at = begin > col ? begin : col; at < end;) {
				int64_t wide = end - at >= 4 * VW ? 4 * VW : end - at < VW ? end - at : VW;
				const uint8_t *w = (const uint8_t *)a->b + (slot * a->rank * a->out + at) * vapp_element(format);
				for (int i = 0; i < count; i += 2) {
					int second = i + 1 < count ? list[i + 1] : list[i];
					const float *mid[2] = {a->mid + list[i] * mids + m * a->rank, a->mid + second * mids + m * a->rank};
					float *y[2] = {a->y + (int64_t)list[i] * a->out + at, a->y + (int64_t)second * a->out + at};
					if (wide == 4 * VW && i + 1 < count)
						adapt_columns(format, 2, 4, mid, w, a->out, a->rank, 4 * VW, y);
					else if (wide == 4 * VW)
						adapt_columns(format, 1, 4, mid, w, a->out, a->rank, 4 * VW, y);
					else
						for (int r = 0; r < 2 && i + r < count; r++)
							adapt_columns(format, 1, 1, &mid[r], w, a->out, a->rank, wide, &y[r]);
				}
				at += wide;
			}
		}
	}
}

void VAPP_NAME(adapt_down)(const void *args, const vapp_call *c)
{
	const vapp_adapt *a = args;
	if (a->format == VAPP_BF16)
		adapt_down_of(VAPP_BF16, a, c);
	else if (a->format == VAPP_F16)
		adapt_down_of(VAPP_F16, a, c);
	else
		adapt_down_of(VAPP_F32, a, c);
}

void VAPP_NAME(adapt_up)(const void *args, const vapp_call *c)
{
	const vapp_adapt *a = args;
	if (a->format == VAPP_BF16)
		adapt_up_of(VAPP_BF16, a, c);
	else if (a->format == VAPP_F16)
		adapt_up_of(VAPP_F16, a, c);
	else
		adapt_up_of(VAPP_F32, a, c);
}
