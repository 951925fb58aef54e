/* attention_body.h: attention over pages and the step's own K and V: causal, in a
 * window or not, or (both) of all tokens of a sequence.
 *
 * Keys are taken in blocks of 16 at absolute positions and in spans of SPAN keys.
 * A span has a softmax of its own (its largest score, the sum of the exponentials,
 * the weighted values); spans are joined in the order of positions. A score is
 * four sums over every fourth dimension, joined as (0+1)+(2+3). So the bits of a row
 * depend on its own keys alone. What lies before the window of all queries is not
 * read, and what a row does not see counts nothing, whatever it is. Queries are taken in tiles of up to TILE rows (a
 * row is a token and a head) that share the loads of K and V.
 *
 * Where there are fewer tiles than threads want, the spans of a tile are shared
 * among parts: their results are kept, and attention_join joins them as a tile's
 * own loop would. */
#include "vec.h"

#define BLOCK 16
#define SPAN VAPP_ATTENTION_SPAN
#define TILE VAPP_ATTENTION_TILE
#define NV (BLOCK / VW) /* vectors in a block of keys */

/* tile is the queries of one piece of work and the room it needs. */
typedef struct {
	const vapp_attention *a;
	int32_t seq, head;     /* of K and V */
	int32_t begin, end;    /* the sequence's rows */
	int32_t token, tokens; /* the tile's first row and how many */
	int32_t history;       /* positions below it are in pages */
	int32_t kept;          /* the block that the page table begins with */
	int32_t rows, group;   /* rows = tokens · group */
	int32_t dim, wide;     /* head dimension; rounded up to 16 */
	float *q;              /* [TILE][wide] */
	float *k;              /* [wide][BLOCK] */
	float *v;              /* [BLOCK][wide] */
	float *score;          /* [TILE][SPAN] */
	float *part, *out;     /* [TILE][wide]: of the span, of all spans */
	float *top, *sum;      /* [TILE] of all spans */
} tile;

/* A row sees the positions [low, high). */
static int32_t high(const tile *t, int32_t row)
{
	return t->history + (t->a->both ? t->end : t->token + row / t->group + 1) - t->begin;
}

static int32_t low(const tile *t, int32_t row)
{
	int32_t n = high(t, row) - t->a->window;
	return t->a->window && n > 0 ? n : 0;
}

/* The tile sees [begin_of, end_of), from a whole block on. */
static int32_t begin_of(const tile *t) { return low(t, 0) / BLOCK * BLOCK; }
static int32_t end_of(const tile *t) { return high(t, t->rows - 1); }

static int32_t within(int32_t x, int32_t from, int32_t to) { return x < from ? from : x > to ? to : x; }

/* A side is K or V of a block: where its rows come from and how they are laid. */
static const uint8_t *history(const tile *t, int32_t at, int64_t *slot)
{
	const vapp_pages *p = &t->a->pages;
	*slot = at % p->block;
	return vapp_page(p, p->table[(int64_t)t->seq * p->width + at / p->block - t->kept]);
}

/* first_new is the first position of a block that the step's own rows hold. */
static int32_t first_new(const tile *t, int32_t at) { return at > t->history ? at : t->history; }

static const uint8_t *own(const tile *t, const void *side, int32_t pos)
{
	const vapp_pages *p = &t->a->pages;
	int64_t row = (int64_t)t->begin + pos - t->history;
	return (const uint8_t *)side + (row * p->kv_heads + t->head) * t->dim * vapp_element(p->format);
}

/* IN_FORMAT calls f with the pages' format as a constant, so that loops have no choice
 * to make. */
#define INLINE static inline __attribute__((always_inline))
#define IN_FORMAT(f, format, ...) \
	switch (format) { \
	case VAPP_F16: f(VAPP_F16, __VA_ARGS__); break; \
	case VAPP_BF16: f(VAPP_BF16, __VA_ARGS__); break; \
	case VAPP_F8_E4M3: f(VAPP_F8_E4M3, __VA_ARGS__); break; \
	case VAPP_F8_E5M2: f(VAPP_F8_E5M2, __VA_ARGS__); break; \
	default: f(VAPP_F32, __VA_ARGS__); \
	}

INLINE void widen(int32_t format, const uint8_t *src, int64_t n, float *dst)
{
	int64_t i = 0, e = vapp_element(format);
	for (; i + VW <= n; i += VW)
		vf_store(dst + i, vf_widen(format, src + i * e));
	if (i < n) {
		uint8_t rest[4 * VW] = {0};
		memcpy(rest, src + i * e, (size_t)((n - i) * e));
		vf_put(dst + i, vf_widen(format, rest), n - i);
	}
}

static void widen_row(const tile *t, const uint8_t *src, float *dst)
{
	IN_FORMAT(widen, t->a->pages.format, src, t->dim, dst)
}

/* columns widens n dimensions of a block of keys, step bytes apart. */
INLINE void columns(int32_t format, const uint8_t *k, int64_t n, int64_t step, float *dst)
{
	for (int64_t i = 0; i < n; i++, k += step)
		for (int j = 0; j < NV; j++)
			vf_store(dst + i * BLOCK + j * VW, vf_widen(format, k + j * VW * vapp_element(format)));
}

/* rebuild makes, of the key in column j, the numbers that are not stored from its value. */
static void rebuild(const tile *t, const uint8_t *value, int32_t j)
{
	int64_t stored = t->a->pages.key_dim / 2, half = t->dim / 2;
	float v[VAPP_ATTENTION_DIM];
	widen_row(t, value, v);
	for (int64_t h = 0; h < t->dim; h += half)
		for (int64_t i = h + stored; i < h + half; i++)
			t->k[i * BLOCK + j] = v[i] * t->a->rebuild[i];
}

/* load_stored fills k with what pages hold of a block's keys, before position end. */
static void load_stored(const tile *t, int32_t at, int32_t end)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format), d = p->key_dim, step = p->block * e, slot;
	const uint8_t *page = history(t, at, &slot), *k = page + p->k + t->head * d * step + slot * e;
	if (!t->a->rebuild) {
		IN_FORMAT(columns, p->format, k, d, step, t->k)
		return;
	}
	IN_FORMAT(columns, p->format, k, d / 2, step, t->k)
	IN_FORMAT(columns, p->format, k + d / 2 * step, d / 2, step, t->k + t->dim / 2 * BLOCK)
	const uint8_t *v = page + p->v + (t->head * p->block + slot) * t->dim * e;
	for (int32_t pos = at; pos < end; pos++, v += t->dim * e)
		rebuild(t, v, pos - at);
}

/* load_keys fills k with the keys of positions [at, end), at most a block. */
static void load_keys(const tile *t, int32_t at, int32_t end)
{
	int64_t d = t->dim;
	int32_t fresh = first_new(t, at);
	if (at < t->history)
		load_stored(t, at, end < fresh ? end : fresh);
	for (int32_t pos = fresh; pos < end; pos++) {
		float row[VAPP_ATTENTION_DIM];
		widen_row(t, own(t, t->a->k, pos), row);
		for (int64_t i = 0; i < d; i++)
			t->k[i * BLOCK + pos - at] = row[i];
		if (t->a->rebuild)
			rebuild(t, own(t, t->a->v, pos), pos - at);
	}
}

/* The lines of a block in a page are asked for, into the second cache, while
 * blocks before it are at work; positions outside of the history are left alone. */
static void ask_keys(const tile *t, int32_t at)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format), row = p->block * e, slot;
	if (at >= t->history)
		return;
	const uint8_t *k = history(t, at, &slot) + p->k + t->head * p->key_dim * row + slot * e;
	for (int64_t i = 0; i < p->key_dim; i += row < 64 ? 64 / row : 1)
		__builtin_prefetch(k + i * row, 0, 2);
}

static void ask_values(const tile *t, int32_t at)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format), slot;
	if (at >= t->history)
		return;
	const uint8_t *v = history(t, at, &slot) + p->v;
	v += (t->head * p->block + slot) * t->dim * e;
	for (int64_t i = 0; i < BLOCK * t->dim * e; i += 64)
		__builtin_prefetch(v + i, 0, 2);
}

/* load_values fills v likewise. */
static void load_values(const tile *t, int32_t at, int32_t end)
{
	const vapp_pages *p = &t->a->pages;
	int64_t e = vapp_element(p->format), d = t->dim;
	int32_t fresh = first_new(t, at);
	if (at < t->history) {
		int64_t slot;
		const uint8_t *v = history(t, at, &slot) + p->v;
		v += (t->head * p->block + slot) * d * e;
		for (int32_t pos = at; pos < end && pos < fresh; pos++, v += d * e)
			widen_row(t, v, t->v + (pos - at) * t->wide);
	}
	for (int32_t pos = fresh; pos < end; pos++)
		widen_row(t, own(t, t->a->v, pos), t->v + (pos - at) * t->wide);
}

/* scores of n ≤ 4 rows with the block: row r to s[r·SPAN]. */
INLINE void scores(const tile *t, const float *q, int n, float *s)
{
	const vf scale = vf_set(t->a->scale);
	for (int j = 0; j < NV; j++) {
		vf acc[4][4];
		const float *k = t->k + j * VW;
		for (int r = 0; r < n; r++)
			for (int i = 0; i < 4; i++)
				acc[r][i] = vf_set(0);
		for (int32_t d = 0; d < t->wide; d += 4)
			for (int i = 0; i < 4; i++) {
				vf key = vf_load(k + (d + i) * BLOCK);
				for (int r = 0; r < n; r++)
					acc[r][i] = vf_fma(vf_set(q[r * t->wide + d + i]), key, acc[r][i]);
			}
		for (int r = 0; r < n; r++)
			vf_store(s + r * SPAN + j * VW, ((acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3])) * scale);
	}
}

/* weigh adds the values of keys [from, keys) of the block to n ≤ 4 rows. */
INLINE void weigh(const tile *t, const float *p, int n, int from, int keys, float *out)
{
	int32_t i = 0;
	for (; i + 2 * VW <= t->wide; i += 2 * VW) {
		vf acc[4][2];
		for (int r = 0; r < n; r++)
			for (int h = 0; h < 2; h++)
				acc[r][h] = vf_load(out + r * t->wide + i + h * VW);
		for (int j = from; j < keys; j++) {
			vf v0 = vf_load(t->v + j * t->wide + i), v1 = vf_load(t->v + j * t->wide + i + VW);
			for (int r = 0; r < n; r++) {
				vf w = vf_set(p[r * SPAN + j]);
				acc[r][0] = vf_fma(w, v0, acc[r][0]);
				acc[r][1] = vf_fma(w, v1, acc[r][1]);
			}
		}
		for (int r = 0; r < n; r++)
			for (int h = 0; h < 2; h++)
				vf_store(out + r * t->wide + i + h * VW, acc[r][h]);
	}
	for (; i < t->wide; i += VW)
		for (int r = 0; r < n; r++) {
			vf acc = vf_load(out + r * t->wide + i);
			for (int j = from; j < keys; j++)
				acc = vf_fma(vf_set(p[r * SPAN + j]), vf_load(t->v + j * t->wide + i), acc);
			vf_store(out + r * t->wide + i, acc);
		}
}

/* seen says which keys of [at, at+n) a row sees: [from, to), counted from at. */
static int seen(const tile *t, int32_t row, int32_t at, int32_t n, int32_t *from, int32_t *to)
{
	*from = within(low(t, row) - at, 0, n), *to = within(high(t, row) - at, 0, n);
	return *from < *to;
}

static void score_span(const tile *t, int32_t at, int32_t end)
{
	for (int32_t b = at; b < end; b += BLOCK) {
		float *s = t->score + (b - at);
		int32_t r = 0;
		ask_keys(t, b + 2 * BLOCK);
		ask_values(t, b);
		load_keys(t, b, b + BLOCK < end ? b + BLOCK : end);
		for (; r + 4 <= t->rows; r += 4)
			scores(t, t->q + r * t->wide, 4, s + r * SPAN);
		if (t->rows - r == 3)
			scores(t, t->q + r * t->wide, 3, s + r * SPAN);
		else if (t->rows - r == 2)
			scores(t, t->q + r * t->wide, 2, s + r * SPAN);
		else if (t->rows - r == 1)
			scores(t, t->q + r * t->wide, 1, s + r * SPAN);
	}
}

static void cap_scores(float *s, int32_t begin, int32_t end, float cap)
{
	for (int32_t i = begin; i < end; i += VW)
		vf_store(s + i, vf_set(cap) * vf_tanh(vf_load(s + i) / vf_set(cap)));
}

/* soften turns a row's scores [from, to) into weights; returns the largest score and
 * sets sum. What lies beside them in their blocks of 16 becomes 0. */
static float soften(float *s, int32_t from, int32_t to, float cap, float *sum)
{
	int32_t begin = from / BLOCK * BLOCK, end = (to + BLOCK - 1) / BLOCK * BLOCK;
	if (cap > 0)
		cap_scores(s, begin, end, cap);
	for (int32_t i = begin; i < from; i++)
		s[i] = -INFINITY;
	for (int32_t i = to; i < end; i++)
		s[i] = -INFINITY;
	vf top = vf_set(-INFINITY), acc = vf_set(0);
	for (int32_t i = begin; i < end; i += VW)
		top = vf_max(vf_load(s + i), top);
	float m = vf_top(top);
	for (int32_t i = begin; i < end; i += VW) {
		vf p = vf_exp(vf_load(s + i) - vf_set(m));
		acc = acc + p;
		vf_store(s + i, p);
	}
	*sum = vf_sum(acc);
	return m;
}

static void weigh_span(const tile *t, int32_t at, int32_t end)
{
	memset(t->part, 0, (size_t)t->rows * t->wide * sizeof(float));
	for (int32_t b = at; b < end; b += BLOCK) {
		const float *p = t->score + (b - at);
		int32_t r = 0;
		load_values(t, b, b + BLOCK < end ? b + BLOCK : end);
		while (r < t->rows) {
			int32_t from, n, from2, n2, last = r + 4 <= t->rows ? r + 3 : t->rows - 1;
			float *out = t->part + r * t->wide;
			seen(t, r, b, BLOCK, &from, &n);
			seen(t, last, b, BLOCK, &from2, &n2);
			if (from != from2 || n != n2)
				last = r;
			switch (from < n ? last - r : -1) {
			case 3:
				weigh(t, p + r * SPAN, 4, from, n, out);
				break;
			case 2:
				weigh(t, p + r * SPAN, 3, from, n, out);
				break;
			case 1:
				weigh(t, p + r * SPAN, 2, from, n, out);
				break;
			case 0:
				weigh(t, p + r * SPAN, 1, from, n, out);
			}
			r = last + 1;
		}
	}
}

static float exp_of(float x)
{
	float e[VW];
	vf_store(e, vf_exp(vf_set(x)));
	return e[0];
}

/* join adds the result of the span at `at` to a row's, which begins with its first. */
static void join(const tile *t, int32_t r, int32_t at, float top, float sum)
{
	float *out = t->out + r * t->wide, *part = t->part + r * t->wide;
	int32_t from, to;
	if (!seen(t, r, at, SPAN, &from, &to))
		return;
	if (low(t, r) >= at) {
		memcpy(out, part, (size_t)t->wide * sizeof(float));
		t->top[r] = top, t->sum[r] = sum;
		return;
	}
	float m = top > t->top[r] || top != top ? top : t->top[r];
	float old = exp_of(t->top[r] - m), new = exp_of(top - m);
	vf a = vf_set(old), b = vf_set(new);
	for (int32_t i = 0; i < t->wide; i += VW)
		vf_store(out + i, vf_fma(vf_load(part + i), b, vf_load(out + i) * a));
	float x = t->sum[r] * old, y = sum * new;
	t->sum[r] = x + y;
	t->top[r] = m;
}

static void start(tile *t)
{
	const vapp_attention *a = t->a;
	memset(t->q, 0, (size_t)t->rows * t->wide * sizeof(float));
	memset(t->k, 0, (size_t)t->wide * BLOCK * sizeof(float));
	memset(t->v, 0, (size_t)BLOCK * t->wide * sizeof(float));
	for (int32_t r = 0; r < t->rows; r++) {
		int64_t row = (int64_t)(t->token + r / t->group) * a->heads + t->head * t->group + r % t->group;
		memcpy(t->q + r * t->wide, a->q + row * t->dim, (size_t)t->dim * sizeof(float));
	}
}

static void finish(const tile *t)
{
	const vapp_attention *a = t->a;
	for (int32_t r = 0; r < t->rows; r++) {
		int64_t row = (int64_t)(t->token + r / t->group) * a->heads + t->head * t->group + r % t->group;
		float *y = a->y + row * t->dim, sum = t->sum[r], scale = 1;
		const float *out = t->out + r * t->wide;
		if (a->sinks) {
			float sink = a->sinks[row % a->heads], m = sink > t->top[r] ? sink : t->top[r];
			scale = exp_of(t->top[r] - m);
			sum = sum * scale + exp_of(sink - m);
		}
		for (int32_t i = 0; i < t->dim; i++)
			y[i] = out[i] * scale / sum;
	}
}

/* span fills part, top and sum of every row with the keys that the tile sees of the
 * span at `at`. */
static void span(const tile *t, int32_t at, float *top, float *sum)
{
	int32_t begin = within(begin_of(t), at, at + SPAN), end = within(end_of(t), at, at + SPAN);
	score_span(t, begin, end);
	for (int32_t r = 0; r < t->rows; r++) {
		int32_t from, to;
		sum[r] = 0, top[r] = -INFINITY;
		if (seen(t, r, begin, end - begin, &from, &to))
			top[r] = soften(t->score + r * SPAN, from, to, t->a->softcap, &sum[r]);
	}
	weigh_span(t, begin, end);
}

static void run(tile *t)
{
	start(t);
	for (int32_t at = begin_of(t) / SPAN * SPAN; at < end_of(t); at += SPAN) {
		float top[TILE], sum[TILE];
		span(t, at, top, sum);
		for (int32_t r = 0; r < t->rows; r++)
			join(t, r, at, top[r], sum[r]);
	}
	finish(t);
}

static tile rooms(const vapp_attention *a, int part)
{
	tile t = {.a = a, .seq = -1, .dim = a->pages.head_dim, .group = a->heads / a->pages.kv_heads};
	float *f = (float *)(a->work + a->work_bytes * part);
	t.wide = (t.dim + 15) / 16 * 16;
	t.q = f, f += TILE * t.wide;
	t.k = f, f += t.wide * BLOCK;
	t.v = f, f += t.wide * BLOCK;
	t.score = f, f += TILE * SPAN;
	t.part = f, f += TILE * t.wide;
	t.out = f, f += TILE * t.wide;
	t.top = f, f += TILE;
	t.sum = f;
	return t;
}

/* reach is how many positions of a sequence its pages hold before the row ahead. Those
 * up to the step's last are there. */
static int32_t reach(const vapp_attention *a, int32_t seq)
{
	const vapp_pages *p = &a->pages;
	int32_t pos = vapp_at(a->positions, a->kept, a->by, seq), b = a->positions[a->first[seq + 1] - 1] / p->block + 1;
	for (; b * p->block < pos; b++)
		if (b >= p->width || p->table[(int64_t)seq * p->width + b] < 0)
			return b * p->block;
	return pos;
}

/* enter moves to the rows of a sequence. */
static void enter(tile *t, int32_t seq)
{
	const vapp_attention *a = t->a;
	t->seq = seq;
	t->begin = a->kept ? seq : a->first[seq];
	t->end = !a->kept ? a->first[seq + 1] : a->kept[seq] < 0 ? seq : seq + 1;
	if (t->begin == t->end || a->both)
		return;
	t->history = a->kept ? reach(a, seq) : a->positions[t->begin];
	t->kept = vapp_kept(&a->pages, t->history);
}

/* next moves to the tile after t's, or to the first where t's seq is -1; 0 at the end. */
static int next(tile *t, int32_t seqs)
{
	int32_t step = TILE / t->group, token = t->token + t->tokens;
	while (t->seq < 0 || token >= t->end) {
		if (t->seq + 1 >= seqs)
			return 0;
		enter(t, t->seq + 1);
		token = t->begin;
	}
	int32_t left = t->end - token;
	t->token = token;
	t->tokens = left < step ? left : step;
	t->rows = t->tokens * t->group;
	return 1;
}

/* cost of a tile, in units that only the sharing among parts uses. */
static int64_t cost(const tile *t) { return (int64_t)(t->tokens + 1) * (end_of(t) - begin_of(t) + 64); }

static int32_t spans_of(const tile *t) { return (end_of(t) + SPAN - 1) / SPAN - begin_of(t) / SPAN; }

/* slot_floats is the room of one span's result: part, top and sum of every row. */
static int64_t slot_floats(const tile *t) { return ((int64_t)t->rows * (t->wide + 2) + 15) / 16 * 16; }

/* split says that the tiles are too few for the threads, and that the results of
 * all spans find room. */
static int split(const vapp_attention *a, const vapp_call *c)
{
	int32_t heads = a->pages.kv_heads, spans = 0;
	int64_t tiles = 0, floats = 0;
	tile t = rooms(a, 0);
	if (a->threads < 2)
		return 0;
	while (next(&t, c->rows[VAPP_SEQS])) {
		tiles += heads;
		floats += heads * spans_of(&t) * slot_floats(&t);
		spans = spans_of(&t) > spans ? spans_of(&t) : spans;
		if (tiles >= 4 * a->threads || floats * 4 > a->shared_bytes)
			return 0;
	}
	return spans > 1;
}

/* A part takes the pieces of work whose middle falls into its share of the total
 * cost: (sequence, tile of tokens, KV head), and span where they are split. */
void VAPP_NAME(attention)(const void *args, const vapp_call *c)
{
	const vapp_attention *a = args;
	tile t = rooms(a, c->part);
	int32_t heads = a->pages.kv_heads, seqs = c->rows[VAPP_SEQS];
	int64_t total = 0, done = 0;
	int apart = split(a, c);
	float *slot = (float *)a->shared;
	while (next(&t, seqs))
		total += cost(&t) * heads;
	for (t.seq = -1, t.tokens = 0; next(&t, seqs);) {
		int32_t begin = begin_of(&t) / SPAN * SPAN;
		int64_t w = cost(&t), size = slot_floats(&t), n = spans_of(&t);
		for (t.head = 0; t.head < heads; t.head++) {
			for (int32_t i = 0, started = 0; apart && i < n; i++, slot += size) {
				int64_t from = w * i / n, to = w * (i + 1) / n;
				if ((done + (from + to) / 2) * c->parts / total != c->part)
					continue;
				if (!started++)
					start(&t);
				t.part = slot;
				span(&t, begin + i * SPAN, slot + t.rows * t.wide, slot + t.rows * (t.wide + 1));
			}
			if (!apart && (done + w / 2) * c->parts / total == c->part)
				run(&t);
			done += w;
		}
	}
}

/* The join of what was split; nothing to do where nothing was. */
void VAPP_NAME(attention_join)(const void *args, const vapp_call *c)
{
	const vapp_attention *a = args;
	tile t = rooms(a, c->part);
	if (!split(a, c))
		return;
	float *slot = (float *)a->shared;
	while (next(&t, c->rows[VAPP_SEQS])) {
		int64_t size = slot_floats(&t), n = spans_of(&t), out = (int64_t)t.rows * t.wide;
		int32_t begin = begin_of(&t) / SPAN * SPAN;
		for (t.head = 0; t.head < a->pages.kv_heads; t.head++, slot += size * n) {
			t.out = slot, t.top = slot + out, t.sum = slot + out + t.rows;
			for (int64_t i = 1; i < n; i++) {
				t.part = slot + i * size;
				for (int32_t r = 0; r < t.rows; r++)
					join(&t, r, begin + (int32_t)i * SPAN, t.part[out + r], t.part[out + t.rows + r]);
			}
			finish(&t);
		}
	}
}
