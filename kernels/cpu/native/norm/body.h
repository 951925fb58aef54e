/* body.h: norms and rotary embedding. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/act.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"

/* inverse_rms returns 1 / sqrt(mean(r²) + eps); the squares are summed in double. */
static float inverse_rms(const float *r, int64_t n, float eps)
{
	double sums[VW] = {0}, sum = 0;
	for (int64_t i = 0; i < n; i += VW) {
		vf v = vf_head(r + i, n - i);
		vf_add_doubles(sums, v * v);
	}
	for (int i = 0; i < VW; i++)
		sum += sums[i];
	return (float)(1 / sqrt(sum / (double)n + (double)eps));
}

/* rms writes r · inv · (offset + w), or r · inv if w is NULL. */
static void rms(const float *r, const float *w, int64_t n, float offset, float inv, float *y)
{
	for (int64_t i = 0; i < n; i += VW) {
		vf v = vf_head(r + i, n - i) * vf_set(inv);
		if (w)
			v = (vf_set(offset) + vf_head(w + i, n - i)) * v;
		vf_put(y + i, v, n - i);
	}
}

/* layer_norm subtracts the mean first and adds the bias last; weights and bias may be NULL. */
static void layer_norm(const float *r, const float *weights, const float *bias, int64_t n, float eps, float *y)
{
	double sums[VW] = {0}, sum = 0;
	for (int64_t i = 0; i < n; i += VW)
		vf_add_doubles(sums, vf_head(r + i, n - i));
	for (int i = 0; i < VW; i++)
		sum += sums[i];
	float mean = (float)(sum / (double)n);
	sum = 0;
	memset(sums, 0, sizeof sums);
	for (int64_t i = 0; i < n; i += VW) {
		vf d = vf_head(r + i, n - i) - vf_set(mean);
		if (n - i < VW) { /* columns past the end do not count */
			float f[VW] = {0};
			vf_put(f, d, n - i);
			d = vf_load(f);
		}
		vf_add_doubles(sums, d * d);
	}
	for (int i = 0; i < VW; i++)
		sum += sums[i];
	vf inv = vf_set((float)(1 / sqrt(sum / (double)n + (double)eps)));
	for (int64_t i = 0; i < n; i += VW) {
		vf v = (vf_head(r + i, n - i) - vf_set(mean)) * inv;
		vf w = vf_set(1), b = vf_set(0);
		if (weights)
			w = vf_head(weights + i, n - i);
		if (bias)
			b = vf_head(bias + i, n - i);
		vf_put(y + i, vf_fma(v, w, b), n - i);
	}
}

void VAPP_NAME(norm)(const void *args, const vapp_call *c)
{
	const vapp_norm *a = args;
	int64_t from, to, n = a->cols;
	vapp_share((int64_t)c->rows[a->symbol] * a->segments, c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		const float *x = a->x + t * n, *r = x;
		float *y = a->y + t * n;
		if (a->residual) {
			float *s = a->residual + t * n;
			for (int64_t i = 0; i < n; i += VW)
				vf_put(s + i, vf_head(s + i, n - i) + vf_head(x + i, n - i), n - i);
			r = s;
		}
		if (a->plain)
			layer_norm(r, a->w, a->bias, n, a->eps, y);
		else
			rms(r, a->w, n, a->offset, inverse_rms(r, n, a->eps), y);
		if (a->scale != 0)
			for (int64_t i = 0; i < n; i += VW)
				vf_put(y + i, vf_head(y + i, n - i) * vf_set(a->scale), n - i);
		if (a->gate)
			for (int64_t i = 0; i < n; i += VW)
				vf_put(y + i, vf_head(y + i, n - i) * vf_silu(vf_head(a->gate + t * n + i, n - i)), n - i);
	}
}

/* rotate rotates a vector of pairs (a, b). Every product is rounded, as in the oracle. */
static inline vf rotate(vf a, vf b, vf cos, vf sin, float sign)
{
	vf p = a * cos, q = b * sin * vf_set(sign);
	vf_apart(p);
	vf_apart(q);
	return p + q;
}

typedef void rotation(const float *x, const float *angles, int32_t rotary, int32_t dim, int32_t format, uint8_t *y);

/* rotate_head rotates one head x into y, which is F32 or (format) narrower. */
static void rotate_head(const float *x, const float *angles, int32_t rotary, int32_t dim, int32_t format, uint8_t *y)
{
	int64_t e = vapp_element(format);
	int32_t h = rotary / 2;
	for (int32_t i = 0; i < h; i += VW) {
		int n = h - i < VW ? h - i : VW;
		vf a = vf_head(x + i, n), b = vf_head(x + h + i, n);
		vf cos = vf_head(angles + i, n), sin = vf_head(angles + h + i, n);
		vf_narrow(format, y + i * e, rotate(a, b, cos, sin, -1), n);
		vf_narrow(format, y + (h + i) * e, rotate(b, a, cos, sin, 1), n);
	}
	for (int32_t i = 2 * h; i < dim; i += VW) {
		int n = dim - i < VW ? dim - i : VW;
		vf_narrow(format, y + i * e, vf_head(x + i, n), n);
	}
}

/* rotate_grid rotates each half of the rotary dimensions by its own half of the angles. */
static void rotate_grid(const float *x, const float *angles, int32_t rotary, int32_t dim, int32_t format, uint8_t *y)
{
	int64_t e = vapp_element(format);
	int32_t h = rotary / 2;
	rotate_head(x, angles, h, h, format, y);
	rotate_head(x + h, angles + h, h, h, format, y + h * e);
	rotate_head(x + rotary, angles, 0, dim - rotary, format, y + rotary * e);
}

/* rotate_pairs is rotate_head for pairs of neighbours. */
static void rotate_pairs(const float *x, const float *angles, int32_t rotary, int32_t dim, int32_t format, uint8_t *y)
{
	float halves[VAPP_ATTENTION_DIM], turned[VAPP_ATTENTION_DIM];
	int32_t h = rotary / 2;
	for (int32_t i = 0; i < h; i++)
		halves[i] = x[2 * i], halves[h + i] = x[2 * i + 1];
	rotate_head(halves, angles, rotary, rotary, VAPP_F32, (uint8_t *)turned);
	for (int32_t i = 0; i < h; i++)
		halves[2 * i] = turned[i], halves[2 * i + 1] = turned[h + i];
	memcpy(halves + rotary, x + rotary, (size_t)(dim - rotary) * 4);
	rotate_head(halves, angles, 0, dim, format, y);
}

/* turn_head normalizes and rotates a head x, as a->norm says, into y, which is F32 or (format)
 * narrower. inverse is that of all heads of the row. */
static void turn_head(const vapp_rope *a, const float *x, const float *w, float inverse, const float *angles, int32_t format, uint8_t *y)
{
	float buffer[VAPP_ATTENTION_DIM];
	int32_t d = a->head_dim, rotary = a->rotary;
	rotation *turn = a->interleaved == VAPP_ROPE_GRID ? rotate_grid : a->interleaved ? rotate_pairs : rotate_head;
	if (a->norm & VAPP_NORM_AFTER) {
		turn(x, angles, rotary, d, VAPP_F32, (uint8_t *)buffer);
		x = buffer, rotary = 0;
	}
	if (a->norm & VAPP_NORM_PLAIN)
		layer_norm(x, w, NULL, d, a->eps, buffer);
	else if (a->norm & VAPP_NORM_QK)
		rms(x, w, d, a->offset, a->norm & VAPP_NORM_WHOLE ? inverse : inverse_rms(x, d, a->eps), buffer);
	turn(a->norm & VAPP_NORM_QK ? buffer : x, angles, rotary, d, format, y);
}

/* A unit is a head of Q, with its gate, or one of K and V. A part computes the mean square of
 * all heads of Q, or of K, once for each of its rows. */
void VAPP_NAME(rope)(const void *args, const vapp_call *c)
{
	const vapp_rope *a = args;
	int64_t from, to, d = a->head_dim, e = vapp_element(a->format), heads = a->heads, kv = a->kv_heads;
	int64_t step = a->gate ? 2 : 1, width = (heads * step + kv * (a->shared ? 1 : 2)) * d, rows[2] = {-1, -1};
	float buffer[VAPP_ATTENTION_DIM], inverse[2] = {0};
	vapp_share(c->rows[a->symbol] * (heads + kv), c, &from, &to);
	for (int64_t u = from; u < to; u++) {
		int64_t t = u / (heads + kv), h = u % (heads + kv);
		const float *x = a->qkv + t * width, *angles = a->rotary ? a->angles + t * a->rotary : NULL, *q = x, *w = a->wq;
		int key = h >= heads;
		if (key)
			h -= heads, x += heads * step * d, w = a->wk;
		if (a->norm & VAPP_NORM_WHOLE && rows[key] != t) {
			inverse[key] = inverse_rms(x, (key ? kv : heads) * d, a->eps);
			rows[key] = t;
		}
		if (w && a->norm & VAPP_NORM_EACH)
			w += h * d;
		if (!key) {
			q += h * step * d;
			if (a->gate)
				memcpy(a->gate + (t * heads + h) * d, q + d, (size_t)d * 4);
			turn_head(a, q, w, inverse[0], a->query_angles ? a->query_angles + t * a->rotary : angles, VAPP_F32, (uint8_t *)(a->q + (t * heads + h) * d));
			continue;
		}
		const float *k = x + h * d, *v = a->shared ? k : k + kv * d;
		uint8_t *ky = (uint8_t *)a->k + (t * kv + h) * d * e, *vy = (uint8_t *)a->v + (t * kv + h) * d * e;
		turn_head(a, k, w, inverse[1], angles, a->format, ky);
		if (a->norm & VAPP_NORM_V) {
			rms(v, NULL, d, 0, inverse_rms(v, d, a->eps), buffer);
			v = buffer;
		}
		for (int64_t i = 0; i < d; i += VW) {
			int n = d - i < VW ? (int)(d - i) : VW;
			vf_narrow(a->format, vy + i * e, vf_head(v + i, n), n);
		}
	}
}

void VAPP_NAME(latent_rope)(const void *args, const vapp_call *c)
{
	const vapp_latent_rope *a = args;
	int64_t from, to, e = vapp_element(a->format), heads = a->heads, rank = a->rank, rotary = a->rotary;
	rotation *turn = a->interleaved ? rotate_pairs : rotate_head;
	float latent[VAPP_ATTENTION_DIM];
	vapp_share(c->rows[a->symbol] * (heads + 1), c, &from, &to);
	for (int64_t u = from; u < to; u++) {
		int64_t t = u / (heads + 1), h = u % (heads + 1), row = t * heads + h;
		const float *angles = a->angles + t * rotary, *kv = a->kv + t * (rank + rotary);
		if (h < heads) {
			turn(a->q + row * (a->nope + rotary) + a->nope, angles, a->rotary, a->rotary, VAPP_F32, (uint8_t *)(a->query + row * (rank + rotary) + rank));
			continue;
		}
		turn(kv + rank, angles, a->rotary, a->rotary, a->format, (uint8_t *)a->k + t * rotary * e);
		rms(kv, a->norm, rank, 0, inverse_rms(kv, rank, a->eps), latent);
		for (int64_t i = 0; i < rank; i += VW)
			vf_narrow(a->format, (uint8_t *)a->v + (t * rank + i) * e, vf_head(latent + i, rank - i), rank - i < VW ? (int)(rank - i) : VW);
	}
}
