/* rows_body.h: the ops that work row by row. */
#include "vec.h"

void VAPP_NAME(norm)(const void *args, const vapp_call *c)
{
	const vapp_norm *a = args;
	int64_t from, to, n = a->cols;
	vapp_share(c->rows[a->symbol], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		const float *x = a->x + t * n, *r = x;
		float *y = a->y + t * n;
		double sums[VW] = {0}, sum = 0;
		if (a->residual) {
			float *s = a->residual + t * n;
			for (int64_t i = 0; i < n; i += VW)
				vf_put(s + i, vf_head(s + i, n - i) + vf_head(x + i, n - i), n - i);
			r = s;
		}
		for (int64_t i = 0; i < n; i += VW) {
			vf v = vf_head(r + i, n - i);
			vf_add_doubles(sums, v * v);
		}
		for (int i = 0; i < VW; i++)
			sum += sums[i];
		vf inv = vf_set((float)(1 / sqrt(sum / (double)n + (double)a->eps)));
		for (int64_t i = 0; i < n; i += VW)
			vf_put(y + i, vf_head(a->w + i, n - i) * (vf_head(r + i, n - i) * inv), n - i);
	}
}

/* A pair of halves turned: every product is rounded, as the oracle does. */
static inline vf turn(vf a, vf b, vf cos, vf sin, float sign)
{
	vf p = a * cos, q = b * sin * vf_set(sign);
	vf_apart(p);
	vf_apart(q);
	return p + q;
}

/* rotate turns one head x into y, F32 or (format) narrower. */
static void rotate(const float *x, const float *angles, int32_t rotary, int32_t dim, int32_t format, uint8_t *y)
{
	int64_t e = vapp_element(format);
	int32_t h = rotary / 2;
	for (int32_t i = 0; i < h; i += VW) {
		int n = h - i < VW ? h - i : VW;
		vf a = vf_head(x + i, n), b = vf_head(x + h + i, n);
		vf cos = vf_head(angles + i, n), sin = vf_head(angles + h + i, n);
		vf_narrow(format, y + i * e, turn(a, b, cos, sin, -1), n);
		vf_narrow(format, y + (h + i) * e, turn(b, a, cos, sin, 1), n);
	}
	for (int32_t i = 2 * h; i < dim; i += VW) {
		int n = dim - i < VW ? dim - i : VW;
		vf_narrow(format, y + i * e, vf_head(x + i, n), n);
	}
}

void VAPP_NAME(rope)(const void *args, const vapp_call *c)
{
	const vapp_rope *a = args;
	int64_t from, to, d = a->head_dim, width = (a->heads + 2 * a->kv_heads) * d, kv = a->kv_heads * d;
	int64_t e = vapp_element(a->format);
	vapp_share(c->rows[VAPP_PER_TOKEN], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		const float *x = a->qkv + t * width, *angles = a->angles + t * a->rotary;
		uint8_t *k = (uint8_t *)a->k + t * kv * e, *v = (uint8_t *)a->v + t * kv * e;
		for (int32_t h = 0; h < a->heads; h++, x += d)
			rotate(x, angles, a->rotary, a->head_dim, VAPP_F32, (uint8_t *)(a->q + (t * a->heads + h) * d));
		for (int32_t h = 0; h < a->kv_heads; h++, x += d)
			rotate(x, angles, a->rotary, a->head_dim, a->format, k + h * d * e);
		for (int64_t i = 0; i < kv; i += VW) {
			int n = kv - i < VW ? (int)(kv - i) : VW;
			vf_narrow(a->format, v + i * e, vf_head(x + i, n), n);
		}
	}
}

/* The columns are shared, not the rows: one row of a decode step is enough for
 * all parts. */
void VAPP_NAME(swiglu)(const void *args, const vapp_call *c)
{
	const vapp_swiglu *a = args;
	int64_t from, to, n = a->cols, rows = c->rows[a->symbol];
	vapp_share((rows * n + VW - 1) / VW, c, &from, &to);
	for (int64_t t = from * VW / n; t < rows && t * n < to * VW; t++) {
		int64_t i = from * VW - t * n, end = to * VW - t * n;
		const float *g = a->x + t * 2 * n;
		float *y = a->y + t * n;
		end = end < n ? end : n;
		for (i = i > 0 ? i : 0; i < end; i += VW) {
			int64_t w = end - i;
			vf v = vf_head(g + i, w), one = vf_set(1);
			vf_put(y + i, v / (one + vf_exp(vf_set(0) - v)) * vf_head(g + n + i, w), w);
		}
	}
}
