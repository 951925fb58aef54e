#include <math.h>
#include <string.h>

#include "../linear/panel.h"
#include "../shared/kernels.h"

/* The ops that need no instruction set of their own. */

void vapp_op_tokens(const void *args, const vapp_call *c)
{
	const vapp_tokens *a = args;
	int64_t from, to;
	vapp_share(c->rows[VAPP_PER_TOKEN], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		int32_t id = a->ids[t];
		if (id < 0)
			id = -1 - id < a->samples ? a->sampled[-1 - id] : 0;
		/* A row that failed has no token; its sequence ends with this step. */
		a->out[t] = id < 0 || id >= a->vocab ? 0 : id;
	}
}

/* slot returns the page where a position of a sequence is stored (backend.KVClass.StoreEntry),
 * and sets *at to its slot. It returns NULL if the position has no page, or if its block leaves
 * the window or the chunk by the end of the step. */
static uint8_t *slot(const vapp_pages *p, const int32_t *positions, const int32_t *first, int32_t seq, int32_t pos, int32_t *at)
{
	int32_t b = pos / p->block;
	if (p->window) {
		b -= vapp_first_block(p, positions[first[seq + 1] - 1] + 1);
		if (b < 0)
			return NULL;
		b += p->width / 2;
	}
	int32_t page = b < p->width ? p->table[(int64_t)seq * p->width + b] : -1;
	*at = pos % p->block;
	return page < 0 ? NULL : vapp_page(p, page);
}

void vapp_op_store_tokens(const void *args, const vapp_call *c)
{
	const vapp_store_tokens *a = args;
	int64_t from, to;
	vapp_share(c->rows[VAPP_PER_TOKEN], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		int32_t at;
		uint8_t *page = slot(&a->pages, a->positions, a->first, a->seq[t], a->positions[t], &at);
		if (page)
			memcpy(page + a->pages.k + (int64_t)at * 4, &a->ids[t], 4);
	}
}

static int64_t row_bytes(int32_t format, int64_t n)
{
	switch (format) {
	case VAPP_F32:
		return n * 4;
	case VAPP_Q8_0:
		return n / 32 * 34;
	case VAPP_Q4_0:
		return n / 32 * 18;
	case VAPP_Q4_1:
	case VAPP_I4:
		return n / 32 * 20;
	case VAPP_Q4_K:
		return n / 256 * 144;
	case VAPP_Q5_0:
		return n / 32 * 22;
	case VAPP_Q5_1:
		return n / 32 * 24;
	case VAPP_Q2_K:
		return n / 256 * 84;
	case VAPP_Q3_K:
		return n / 256 * 110;
	case VAPP_Q5_K:
		return n / 256 * 176;
	case VAPP_IQ4_NL:
		return n / 32 * 18;
	case VAPP_Q6_K:
		return n / 256 * 210;
	case VAPP_IQ4_XS:
		return n / 256 * 136;
	case VAPP_NVFP4:
		return n / 16 * 9;
	}
	return stored_block(format) ? n / 256 * stored_block(format) : n * 2;
}

void vapp_op_embed(const void *args, const vapp_call *c)
{
	const vapp_embed *a = args;
	int64_t from, to, bytes = row_bytes(a->format, a->cols);
	vapp_share(c->rows[a->symbol], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		float *y = a->y + t * a->cols;
		int32_t id = a->ids[t] - a->row0;
		if (id < 0 || id >= a->rows) {
			memset(y, 0, (size_t)a->cols * 4);
			continue;
		}
		if (a->row)
			a->row(a->table, a->format, a->cols, a->rows, id, y);
		else
			vapp_dequantize(a->format, (const uint8_t *)a->table + id * bytes, a->cols, y);
		if (a->scale != 1)
			for (int32_t i = 0; i < a->cols; i++)
				y[i] *= a->scale;
	}
}

void vapp_op_angles(const void *args, const vapp_call *c)
{
	const vapp_angles *a = args;
	int64_t from, to;
	vapp_share(c->rows[a->accepted_row ? VAPP_SEQS : VAPP_PER_TOKEN], c, &from, &to);
	for (int64_t t = from; a->across && t < to; t++)
		for (int32_t i = 0; i < 2 * a->half; i++) {
			int32_t k = i % a->half, second = i >= a->half, far = (a->joined ? 2 : 1) * a->half;
			float x = (float)(second ? a->down : a->across)[t] * a->freq[k];
			float *y = a->y + t * 4 * a->half + second * (a->joined ? 1 : 2) * a->half + k;
			y[0] = (float)cos((double)x) * a->scale;
			y[far] = (float)sin((double)x) * a->scale;
		}
	for (int64_t t = from; a->axes && t < to; t++)
		for (int32_t i = 0; i < a->half; i++) {
			int32_t axis = i < 3 * a->sections[i % 3] ? i % 3 : 0;
			int64_t row = a->accepted_row ? a->accepted_row[t] : t;
			int32_t at = row < 0 ? 0 : a->axes[3 * row + axis] + (a->accepted_row ? a->by : 0);
			float x = (float)at * a->freq[i];
			a->y[t * 2 * a->half + i] = (float)cos((double)x) * a->scale;
			a->y[t * 2 * a->half + a->half + i] = (float)sin((double)x) * a->scale;
		}
	for (int64_t t = from; !a->across && !a->axes && t < to; t++) {
		int32_t at = vapp_at(a->positions, a->accepted_row, a->by, t);
		at = at < 0 ? 0 : at;
		float *y = a->y + t * 2 * a->half, pos = (float)at, scale = a->scale;
		if (a->every)
			scale *= (float)(1 + (double)a->beta * log((double)(1 + ((int64_t)at + a->offset) / a->every)));
		for (int32_t i = 0; i < a->half; i++) {
			float x = pos * a->freq[i]; /* rounded to float, as in transformers */
			y[i] = (float)cos((double)x) * scale;
			y[a->half + i] = (float)sin((double)x) * scale;
		}
	}
}

/* store_part stores the rotated dimensions of a key. */
static void store_part(uint8_t *dst, const uint8_t *src, const vapp_pages *p)
{
	int64_t e = vapp_element(p->format), half = p->key_dim / 2;
	for (int32_t h = 0; h < p->kv_heads; h++, src += p->head_dim * e)
		for (int32_t i = 0; i < p->key_dim; i++, dst += p->block * e)
			memcpy(dst, src + (i < half ? i : p->head_dim / 2 + i - half) * e, (size_t)e);
}

/* store_key stores a key of all heads; whole: all numbers of src. */
static void store_key(uint8_t *dst, const uint8_t *src, const vapp_pages *p, int whole)
{
	int64_t n = (int64_t)p->kv_heads * p->key_dim;
	if (!whole) {
		store_part(dst, src, p);
		return;
	}
	switch (vapp_element(p->format)) {
	case 4:
		for (int64_t i = 0; i < n; i++)
			memcpy(dst + i * p->block * 4, src + i * 4, 4);
		return;
	case 2:
		for (int64_t i = 0; i < n; i++)
			memcpy(dst + i * p->block * 2, src + i * 2, 2);
		return;
	default:
		for (int64_t i = 0; i < n; i++)
			dst[i * p->block] = src[i];
	}
}

void vapp_op_store_kv(const void *args, const vapp_call *c)
{
	const vapp_store_kv *a = args;
	const vapp_pages *p = &a->pages;
	int64_t from, to, e = vapp_element(p->format), d = e * p->head_dim, n = d * p->kv_heads;
	int64_t key = a->latent ? e * p->key_dim * p->kv_heads : n;
	vapp_share(c->rows[a->accepted_row ? VAPP_SEQS : VAPP_PER_TOKEN], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		int32_t at, pos = vapp_at(a->positions, a->accepted_row, a->by, t), seq = a->accepted_row ? (int32_t)t : a->seq[t];
		uint8_t *page = pos < 0 ? NULL : slot(p, a->positions, a->first, seq, pos, &at);
		if (!page)
			continue;
		store_key(page + p->k + at * e, (const uint8_t *)a->k + t * key, p, a->latent || p->key_dim == p->head_dim);
		for (int32_t h = 0; h < p->kv_heads; h++)
			memcpy(page + p->v + ((int64_t)h * p->block + at) * d, (const uint8_t *)a->v + t * n + h * d, (size_t)d);
	}
}

void vapp_op_gather(const void *args, const vapp_call *c)
{
	const vapp_gather *a = args;
	int64_t from, to;
	vapp_share(c->rows[VAPP_PER_SAMPLE], c, &from, &to);
	for (int64_t i = from; i < to; i++)
		memcpy(a->y + i * a->bytes, a->x + a->rows[i] * a->bytes, (size_t)a->bytes);
}

/* A sequence without tokens keeps its row of y. */
void vapp_op_gather_last(const void *args, const vapp_call *c)
{
	const vapp_gather_last *a = args;
	int64_t from, to;
	vapp_share(c->rows[VAPP_SEQS], c, &from, &to);
	for (int64_t s = from; s < to; s++)
		if (a->first[s + 1] > a->first[s])
			memcpy(a->y + s * a->bytes, a->x + (a->first[s + 1] - 1) * a->bytes, (size_t)a->bytes);
}

void vapp_op_concat(const void *args, const vapp_call *c)
{
	const vapp_concat *a = args;
	int64_t from, to, n = a->a_cols, m = a->b_cols;
	vapp_share(c->rows[a->symbol], c, &from, &to);
	for (int64_t t = from; t < to && m < 0; t++) /* the columns b of a */
		for (int64_t i = 0; i < -m; i++)
			a->y[t * -m + i] = a->a[t * n + (int64_t)a->b[i]];
	if (m < 0)
		return;
	for (int64_t t = from; t < to; t++) {
		memcpy(a->y + t * (n + m), a->a + t * n, (size_t)n * 4);
		memcpy(a->y + t * (n + m) + n, a->b + t * m, (size_t)m * 4);
	}
}

/* pick inserts id into the k best keys so far; among equals the earlier one stays first. It returns
 * their number, at most top. */
static int32_t pick(float key, int32_t id, float *keys, int32_t *ids, int32_t k, int32_t top)
{
	int32_t at = k;
	while (at > 0 && key > keys[at - 1])
		at--;
	if (at == top)
		return k;
	for (int32_t i = k < top ? k : top - 1; i > at; i--) {
		keys[i] = keys[i - 1];
		ids[i] = ids[i - 1];
	}
	keys[at] = key;
	ids[at] = id;
	return k < top ? k + 1 : top;
}

/* scoring is what the scores of a row have in common: exp(logit - largest) / sum, sigmoids, or
 * the logits. */
typedef struct {
	double largest, sum;
} scoring;

static scoring scoring_of(const vapp_route *a, const float *x)
{
	scoring s = {x[0], 0};
	if (a->score != VAPP_SOFTMAX)
		return s;
	for (int32_t e = 1; e < a->experts; e++)
		s.largest = x[e] > s.largest ? x[e] : s.largest;
	for (int32_t e = 0; e < a->experts; e++)
		s.sum += exp((double)x[e] - s.largest);
	return s;
}

static double score(const vapp_route *a, const scoring *s, float x)
{
	switch (a->score) {
	case VAPP_SOFTMAX:
		return exp((double)x - s->largest) / s->sum;
	case VAPP_SIGMOID:
		return 1 / (1 + exp(-(double)x));
	case VAPP_LOGIT:
		return x;
	}
	return exp((double)x - s->largest);
}

/* compared returns the key of expert e. */
static float compared(const vapp_route *a, const scoring *s, const float *x, int32_t e)
{
	if (!a->correction && !a->groups)
		return x[e];
	float key = (float)score(a, s, x[e]);
	return a->correction ? key + a->correction[e] : key;
}

/* best_groups returns the groups whose experts are compared, a bit for each. */
static uint32_t best_groups(const vapp_route *a, const scoring *s, const float *x)
{
	float sums[VAPP_GROUPS];
	int32_t best[VAPP_GROUPS], k = 0, size = a->experts / a->groups;
	uint32_t chosen = 0;
	for (int32_t g = 0; g < a->groups; g++) {
		float two[2];
		int32_t ids[2], n = 0;
		for (int32_t e = g * size; e < (g + 1) * size; e++)
			n = pick(compared(a, s, x, e), e, two, ids, n, 2);
		k = pick(a->group_top == 1 ? two[0] : two[0] + two[1], g, sums, best, k, a->top_groups);
	}
	for (int32_t i = 0; i < k; i++)
		chosen |= 1u << best[i];
	return chosen;
}

/* Scores run in double, as in the oracle: a row is short. */
void vapp_op_route(const void *args, const vapp_call *c)
{
	const vapp_route *a = args;
	int64_t from, to;
	vapp_share(c->rows[a->symbol], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		const float *x = a->logits + t * a->experts;
		int32_t *ids = a->ids + t * a->top, n = 0, size = a->groups ? a->experts / a->groups : a->experts;
		float *w = a->weights + t * a->top; /* first the keys of the best */
		scoring s = scoring_of(a, x);
		uint32_t chosen = a->groups ? best_groups(a, &s, x) : 1;
		for (int32_t e = 0; e < a->experts; e++)
			if (chosen >> e / size & 1)
				n = pick(compared(a, &s, x, e), e, w, ids, n, a->top);
		double sum = 0;
		if (a->score == VAPP_SELECTED_SOFTMAX)
			s.largest = x[ids[0]];
		for (int32_t k = 0; k < a->top; k++)
			sum += score(a, &s, x[ids[k]]);
		if (a->score != VAPP_SELECTED_SOFTMAX && !a->normalize)
			sum = 1;
		sum = sum < 1e-20 ? 1e-20 : sum;
		for (int32_t k = 0; k < a->top; k++) {
			w[k] = (float)(score(a, &s, x[ids[k]]) / sum * a->factor);
			if (a->scale)
				w[k] *= a->scale[ids[k]];
		}
	}
}

void vapp_op_linear_prepare(const void *args, const vapp_call *c)
{
	const vapp_linear_op *o = args;
	vapp_linear a = o->a;
	a.rows = c->rows[o->symbol];
	if (a.rows < o->kernel->prepare_rows || a.rows == 0)
		return;
	a.work = (uint8_t *)o->a.work + o->work_stride * c->part;
	o->kernel->prepare(&a, c->part, c->parts);
}

void vapp_op_linear(const void *args, const vapp_call *c)
{
	const vapp_linear_op *o = args;
	vapp_linear a = o->a;
	a.rows = c->rows[o->symbol];
	if (a.rows == 0)
		return;
	a.work = (uint8_t *)o->a.work + o->work_stride * c->part;
	a.taken = c->taken;
	a.nodes = c->nodes;
	o->kernel->run(&a, c->part, c->parts);
}
