/* body.h: recurrent layers. Each sequence has its state in one page.
 *
 * Each number of the state is updated token by token in one order. So the bits depend neither
 * on how tokens are split into steps nor on parts. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/act.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"

static inline uint8_t *state_page(const vapp_pages *p, int64_t seq) { return vapp_page(p, p->table[seq * p->width]) + p->k; }

/* start_snapshot returns the snapshot that a sequence's step begins from. snapshot_after returns
 * the one that stores the state after the sequence's first n tokens. Both read a table of
 * backend.KVClass.SnapshotClass and return NULL if there is none. */
static inline uint8_t *start_snapshot(const vapp_pages *m, int64_t seq)
{
	const int32_t *entry = m->table ? m->table + seq * m->width : NULL;
	return entry && entry[0] >= 0 ? vapp_page(m, entry[0]) + m->k : NULL;
}

static inline uint8_t *snapshot_after(const vapp_pages *m, int64_t seq, int64_t n)
{
	const int32_t *entry = m->table ? m->table + seq * m->width : NULL;
	for (int32_t i = 1; entry && i + 1 < m->width; i += 2)
		if (entry[i] >= 0 && entry[i + 1] == n)
			return vapp_page(m, entry[i]) + m->k;
	return NULL;
}

/* round_to returns x rounded to format. */
static inline vf round_to(int32_t format, vf x)
{
	if (format == VAPP_BF16)
		return vf_round_bfloat(x);
	if (format == VAPP_F16) {
		uint16_t h[VW];
		vf_store_half(h, x);
		return vf_half(h);
	}
	return x;
}

/* row_of returns the row of the state for the input of position pos, in a step that ends before
 * position end. */
static inline int64_t row_of(const vapp_conv *a, int64_t pos, int64_t end)
{
	if (a->conv_rows >= a->kernel)
		return pos % a->conv_rows;
	return pos - (end - a->conv_rows);
}

/* conv_weights transposes the weights of n columns, [n, k], to k vectors. The usual kernels of
 * four take two rounds of vf_pairs. */
static inline void conv_weights(const float *w, int32_t k, int n, float *out)
{
	float even[2 * VW], odd[2 * VW];
	vf a, b;
	if (k != 4 || n != VW) {
		for (int32_t j = 0; j < k; j++)
			for (int i = 0; i < n; i++)
				out[j * VW + i] = w[i * k + j];
		return;
	}
	for (int i = 0; i < 2; i++) {
		vf_pairs(w + 2 * i * VW, &a, &b);
		vf_store(even + i * VW, a);
		vf_store(odd + i * VW, b);
	}
	for (int i = 0; i < 2; i++) {
		vf_pairs(i ? odd : even, &a, &b);
		vf_store(out + i * VW, a);
		vf_store(out + (i + 2) * VW, b);
	}
}

/* mark_inputs stores the last inputs, the oldest first, in a snapshot of the state before end. */
static void mark_inputs(const vapp_conv *a, uint8_t *mark, const vf *past, int64_t end, int n)
{
	int64_t row = a->cols * vapp_element(a->pages.format);
	for (int64_t j = 0; j < a->kernel - 1; j++) {
		int64_t pos = end - (a->kernel - 1) + j;
		if (pos >= 0 || a->conv_rows < a->kernel)
			vf_narrow(a->pages.format, mark + row_of(a, pos, end) * row, past[j], n);
	}
}

/* conv_columns computes n ≤ VW columns, from col on, of one sequence. */
static void conv_columns(const vapp_conv *a, int64_t seq, int64_t col, int n)
{
	int32_t k = a->kernel, f = a->pages.format;
	int64_t e = vapp_element(f), first = a->first[seq], rows = a->first[seq + 1] - first;
	int64_t start = a->positions[first], end = start + rows;
	uint8_t *page = state_page(&a->pages, seq) + col * e, *begin = start_snapshot(&a->marks, seq), *mark;
	float w[VAPP_CONV_KERNEL * VW] = {0};
	vf past[VAPP_CONV_KERNEL]; /* the last inputs, the oldest first; then the token's own */
	conv_weights(a->w + col * k, k, n, w);
	for (int32_t j = 0; j < k - 1; j++) {
		int64_t pos = start - (k - 1) + j;
		const uint8_t *row = (begin ? begin + col * e : page) + row_of(a, pos, start) * a->cols * e;
		float some[VW] = {0};
		if (pos >= 0 && n < VW)
			vapp_dequantize(f, row, n, some);
		past[j] = pos >= 0 && n == VW ? vf_widen(f, row) : vf_load(some);
		if (begin && a->conv_rows >= k && pos >= 0 && pos >= end - a->conv_rows)
			vf_narrow(f, page + row_of(a, pos, start) * a->cols * e, past[j], n);
	}
	for (int64_t t = 0; t < rows; t++) {
		vf sum = vf_set(0);
		past[k - 1] = round_to(f, vf_head(a->x + (first + t) * a->cols + col, n));
		for (int32_t j = 0; j < k; j++)
			sum = vf_fma(vf_load(w + j * VW), past[j], sum);
		vf_put(a->y + (first + t) * a->cols + col, vf_silu(sum), n);
		if (a->conv_rows >= k && start + t >= end - a->conv_rows)
			vf_narrow(f, page + row_of(a, start + t, end) * a->cols * e, past[k - 1], n);
		for (int32_t j = 0; j < k - 1; j++)
			past[j] = past[j + 1];
		if ((mark = snapshot_after(&a->marks, seq, start + t + 1)))
			mark_inputs(a, mark + col * e, past, start + t + 1, n);
	}
	if (a->conv_rows < k)
		for (int32_t j = 0; j < k - 1; j++)
			vf_narrow(f, page + j * a->cols * e, past[j], n);
}

/* A unit is a sequence and some columns. */
void VAPP_NAME(conv)(const void *args, const vapp_call *c)
{
	const vapp_conv *a = args;
	int64_t from, to, units = (a->cols + VAPP_CONV_COLS - 1) / VAPP_CONV_COLS;
	vapp_share(c->rows[VAPP_SEQS] * units, c, &from, &to);
	for (int64_t u = from; u < to; u++) {
		int64_t seq = u / units, col = u % units * VAPP_CONV_COLS, end = col + VAPP_CONV_COLS;
		if (a->first[seq] == a->first[seq + 1])
			continue;
		for (end = end < a->cols ? end : a->cols; col < end; col += VW)
			conv_columns(a, seq, col, end - col < VW ? (int)(end - col) : VW);
	}
}

/* The delta rule is computed token by token, not in chunks. A token costs four vector
 * operations for each vector of the state, as much as the products of a chunk would cost; the
 * projections of the layer are a hundred times as much work.
 *
 * gates holds what a token does to all columns of a value head. */
typedef struct {
	const float *q, *k;
	float decay, beta, q_scale, k_scale;
} gates;

static inline double square_sum(const float *x, int64_t n)
{
	double sums[VW] = {0}, sum = 0;
	for (int64_t i = 0; i < n; i += VW) {
		vf v = vf_head(x + i, n - i);
		vf_add_doubles(sums, v * v);
	}
	for (int i = 0; i < VW; i++)
		sum += sums[i];
	return sum;
}

static gates token_gates(const vapp_delta *a, int64_t token, int64_t head)
{
	int64_t n = a->key_dim, keys = a->key_heads * n, own = head / (a->value_heads / a->key_heads);
	const float *qkv = a->qkv + token * (2 * keys + (int64_t)a->value_heads * a->value_dim), *ba = a->ba + token * 2 * a->value_heads;
	gates g = {.q = qkv + own * n, .k = qkv + keys + own * n};
	double x = (double)(ba[a->value_heads + head] + a->dt_bias[head]), soft = x > 20 ? x : log1p(exp(x));
	g.decay = (float)exp(-exp((double)a->a_log[head]) * soft);
	g.beta = (float)(1 / (1 + exp(-(double)ba[head])));
	g.q_scale = (float)(1 / sqrt((square_sum(g.q, n) + 1e-6) * (double)n));
	g.k_scale = (float)(1 / sqrt(square_sum(g.k, n) + 1e-6));
	return g;
}

/* delta_rows computes one token for NV vectors of columns of the state s, whose rows are
 * `stride` floats apart. A sum over rows is four sums, each over every fourth row, joined as
 * (0+1)+(2+3). */
#define NV 2
static inline __attribute__((always_inline)) void delta_rows(const gates *g, float *s, int64_t dim, int64_t stride, const float *v, float *y)
{
	const vf decay = vf_set(g->decay);
	vf acc[4][NV], step[NV];
	for (int r = 0; r < 4; r++)
		for (int j = 0; j < NV; j++)
			acc[r][j] = vf_set(0);
	for (int64_t i = 0; i < dim; i += 4)
		for (int r = 0; r < 4 && i + r < dim; r++)
			for (int j = 0; j < NV; j++)
				acc[r][j] = vf_fma(vf_load(s + (i + r) * stride + j * VW), vf_set(g->k[i + r]), acc[r][j]);
	for (int j = 0; j < NV; j++) {
		vf seen = ((acc[0][j] + acc[1][j]) + (acc[2][j] + acc[3][j])) * vf_set(g->k_scale);
		vf gap = vf_fma(vf_set(0) - decay, seen, vf_load(v + j * VW));
		step[j] = gap * vf_set(g->beta) * vf_set(g->k_scale);
	}
	for (int r = 0; r < 4; r++)
		for (int j = 0; j < NV; j++)
			acc[r][j] = vf_set(0);
	for (int64_t i = 0; i < dim; i += 4)
		for (int r = 0; r < 4 && i + r < dim; r++)
			for (int j = 0; j < NV; j++) {
				float *at = s + (i + r) * stride + j * VW;
				vf now = vf_fma(vf_set(g->k[i + r]), step[j], vf_load(at) * decay);
				vf_store(at, now);
				acc[r][j] = vf_fma(now, vf_set(g->q[i + r]), acc[r][j]);
			}
	for (int j = 0; j < NV; j++)
		vf_store(y + j * VW, ((acc[0][j] + acc[1][j]) + (acc[2][j] + acc[3][j])) * vf_set(g->q_scale));
}

/* run is n tokens of one sequence, from row `token` on, for columns of one head. */
typedef struct {
	const vapp_delta *a;
	int64_t seq, head, token, n;
} run;

/* matrix returns the head's matrix in a state; copy returns it in the state after position pos. */
static float *matrix(const run *r, const uint8_t *state)
{
	return (float *)state + r->head * r->a->key_dim * r->a->value_dim;
}

static float *copy(const run *r, int64_t pos)
{
	const vapp_delta *a = r->a;
	return matrix(r, state_page(&a->pages, r->seq) + (a->copies > 1 ? pos % a->copies * a->copy_bytes : 0));
}

/* is_sampled reports whether a row of the step is sampled. */
static int is_sampled(const vapp_delta *a, const vapp_call *c, int64_t token)
{
	for (int32_t i = 0; i < c->rows[VAPP_PER_SAMPLE]; i++)
		if (a->rows[i] == token)
			return 1;
	return 0;
}

enum { WIDE = NV * VW };

/* move copies n columns of the state between a copy and a buffer of WIDE columns. */
static void move(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows, int64_t n)
{
	for (int64_t i = 0; i < rows; i++)
		memcpy(to + i * to_stride, from + i * from_stride, (size_t)n * 4);
}

/* delta_columns takes n ≤ WIDE columns, from col on, through all tokens. A single token updates
 * the state in place if it may. For several tokens the columns are copied to a buffer, because
 * rows that are far apart share few sets of the first cache. */
static void delta_columns(const run *r, const vapp_call *c, const gates *g, int64_t col, int64_t n)
{
	const vapp_delta *a = r->a;
	int64_t dim = a->key_dim, d = a->value_dim, pos = a->positions[r->token];
	int64_t keys = 2 * (int64_t)a->key_heads * dim, cols = keys + a->value_heads * d;
	float buffer[VAPP_DELTA_KEYS * WIDE], v[WIDE] = {0}, y[WIDE], *s = buffer;
	int64_t stride = WIDE;
	const uint8_t *begin = r->token == a->first[r->seq] ? start_snapshot(&a->marks, r->seq) : NULL;
	if (a->copies == 1 && n == WIDE && r->n == 1 && !begin) {
		s = copy(r, 0) + col;
		stride = d;
		if (pos == 0)
			for (int64_t i = 0; i < dim; i++)
				memset(s + i * d, 0, sizeof v);
	} else {
		memset(buffer, 0, (size_t)dim * sizeof v);
		if (pos > 0)
			move(buffer, WIDE, (begin ? matrix(r, begin) : copy(r, pos - 1)) + col, d, dim, n);
	}
	for (int64_t t = 0; t < r->n; t++) {
		memcpy(v, a->qkv + (r->token + t) * cols + keys + r->head * d + col, (size_t)n * 4);
		delta_rows(&g[t], s, dim, stride, v, y);
		memcpy(a->y + ((r->token + t) * a->value_heads + r->head) * d + col, y, (size_t)n * 4);
		int end = t == r->n - 1;
		if (s == buffer && (end || (a->copies > 1 && is_sampled(a, c, r->token + t))))
			move(copy(r, pos + t) + col, d, buffer, WIDE, dim, n);
		const uint8_t *mark = snapshot_after(&a->marks, r->seq, pos + t + 1);
		if (mark)
			move(matrix(r, mark) + col, d, s, stride, dim, n);
	}
}

/* A unit is a sequence, a value head and some of its columns. */
void VAPP_NAME(delta)(const void *args, const vapp_call *c)
{
	enum { TOKENS = 64 };
	const vapp_delta *a = args;
	gates g[TOKENS];
	int64_t from, to, blocks = (a->value_dim + VAPP_DELTA_COLS - 1) / VAPP_DELTA_COLS, units = a->value_heads * blocks;
	vapp_share(c->rows[VAPP_SEQS] * units, c, &from, &to);
	for (int64_t u = from; u < to; u++) {
		run r = {.a = a, .seq = u / units, .head = u % units / blocks};
		int64_t col = u % blocks * VAPP_DELTA_COLS, end = col + VAPP_DELTA_COLS, stop = a->first[r.seq + 1];
		end = end < a->value_dim ? end : a->value_dim;
		for (r.token = a->first[r.seq]; r.token < stop; r.token += r.n) {
			r.n = stop - r.token < TOKENS ? stop - r.token : TOKENS;
			for (int64_t t = 0; t < r.n; t++)
				g[t] = token_gates(a, r.token + t, r.head);
			for (int64_t at = col; at < end; at += WIDE)
				delta_columns(&r, c, g, at, end - at < WIDE ? end - at : WIDE);
		}
	}
}
