/* sample_body.h: one row of logits becomes a token. The order of steps, and what
 * wins among equals, are those of kernels/ref/sample.go; its sorts are replaced by
 * a search of the bits of the numbers from the top (radix selection). */
#include "vec.h"

enum { GRAMMAR = 1, ALLOWED = 2, LOGPROB = 4, TARGET = 8 };
enum { NAN_ROW = 1 };
#define BINS VAPP_SAMPLE_BINS

/* room is what one part needs, SampleWorkspace. */
typedef struct {
	double mass[BINS];
	int32_t count[BINS];
	int32_t *seen; /* [vocab] */
	float *raw;    /* [vocab] */
} room;

static room *room_of(const vapp_sample *a, int part)
{
	room *r = (room *)(a->work + a->work_bytes * part);
	r->seen = (int32_t *)(r + 1);
	r->raw = (float *)(r->seen + a->vocab);
	return r;
}

/* ordered maps floats to integers of the same order. */
static inline uint32_t ordered(float f)
{
	uint32_t u;
	f = f + 0.0f; /* −0 equals 0 */
	memcpy(&u, &f, 4);
	return u & 0x80000000 ? ~u : u | 0x80000000;
}

/* usable: no logit is NaN or +Inf and one is finite. */
static int usable(const float *z, int64_t n)
{
	float top = -INFINITY;
	int bad = 0;
	int64_t i = 0;
	vf t = vf_set(-INFINITY), sick = vf_set(0);
	for (; i + VW <= n; i += VW) {
		vf v = vf_load(z + i);
		t = vf_max(v, t);
		sick = sick + v * vf_set(0); /* NaN where v is not finite and stays so */
	}
	top = vf_top(t);
	if (vf_sum(sick) != 0 || i < n) /* −Inf is allowed: look closer */
		for (i = 0; i < n; i++) {
			bad |= z[i] != z[i] || z[i] > 3.40282347e38f;
			top = z[i] > top ? z[i] : top;
		}
	return !bad && top >= -3.40282347e38f && top <= 3.40282347e38f;
}

static void mask(float *z, const uint32_t *bits, int32_t n)
{
	for (int32_t w = 0; w * 32 < n; w++) {
		uint32_t b = bits[w];
		if (b == UINT32_MAX)
			continue;
		int32_t end = n - w * 32 < 32 ? n - w * 32 : 32;
		for (int32_t i = 0; i < end; i++)
			if (!(b >> i & 1))
				z[w * 32 + i] = -INFINITY;
	}
}

static int32_t history(const vapp_sample *a, const vapp_sample_row *r, int32_t i)
{
	const vapp_pages *p = &a->pages;
	int32_t page = p->table[(int64_t)r->seq * p->width + i / p->block], id;
	if (page < 0)
		return 0;
	memcpy(&id, vapp_page(p, page) + p->k + (int64_t)(i % p->block) * 4, 4);
	return id >= 0 && id < a->vocab ? id : 0;
}

static void penalize(const vapp_sample *a, const vapp_sample_row *r, float *z, int32_t *seen)
{
	if (r->repetition == 1 && r->frequency == 0 && r->presence == 0)
		return;
	for (int32_t i = 0; i < r->history_len; i++)
		seen[history(a, r, i)] = 0;
	for (int32_t i = r->prompt_len; i < r->history_len; i++)
		seen[history(a, r, i)]++;
	for (int32_t i = 0; i < r->history_len; i++) {
		int32_t id = history(a, r, i), n = seen[id];
		if (n < 0)
			continue;
		seen[id] = -1;
		z[id] = z[id] > 0 ? z[id] / r->repetition : z[id] * r->repetition;
		if (n > 0) {
			volatile float all = r->frequency * (float)n; /* rounded before the difference */
			z[id] -= all;
			z[id] -= r->presence;
		}
	}
}

static int32_t argmax(const float *z, int32_t n)
{
	vf t = vf_set(-INFINITY);
	int32_t i = 0;
	for (; i + VW <= n; i += VW)
		t = vf_max(vf_load(z + i), t);
	float top = vf_top(t);
	for (; i < n; i++)
		top = z[i] > top ? z[i] : top;
	for (i = 0; i < n; i++)
		if (z[i] == top)
			return i;
	return 0;
}

static double total(const float *w, int32_t n)
{
	double sums[VW] = {0}, sum = 0;
	int32_t i = 0;
	for (; i + VW <= n; i += VW)
		vf_add_doubles(sums, vf_load(w + i));
	for (int j = 0; j < VW; j++)
		sum += sums[j];
	for (; i < n; i++)
		sum += (double)w[i];
	return sum;
}

/* cut is where a walk from the best down ends: the bits of the last value, and how
 * many of the values equal to it are taken. */
typedef struct {
	uint32_t key;
	int32_t equals;
} cut;

/* descend walks z from the largest value down while less than enough has been
 * taken; a value weighs w[i], or 1 where w is NULL. The first is always taken. */
static cut descend(room *r, const float *z, const float *w, int32_t n, double enough)
{
	static const int shifts[3] = {21, 10, 0};
	uint32_t prefix = 0;
	double sum = 0;
	cut c = {0, 0};
	int first = 1;
	for (int level = 0; level < 3; level++) {
		int shift = shifts[level], bits = level == 2 ? 10 : 11, b;
		memset(r->mass, 0, sizeof r->mass);
		memset(r->count, 0, sizeof r->count);
		for (int32_t i = 0; i < n; i++) {
			uint32_t key = ordered(z[i]);
			if (level && key >> (shift + bits) != prefix)
				continue;
			int bin = (int)(key >> shift & (BINS - 1) & ((1u << bits) - 1));
			r->count[bin]++;
			r->mass[bin] += w ? (double)w[i] : 1;
		}
		int last = -1;
		for (b = (1 << bits) - 1; b >= 0; b--) {
			if (!r->count[b])
				continue;
			if (sum >= enough && !first)
				break;
			last = b;
			if (sum + r->mass[b] >= enough)
				break;
			sum += r->mass[b];
			first = 0;
		}
		if (b < 0 || last != b) { /* the walk ended before this bin, or after all */
			b = last;
			sum -= r->mass[b];
		}
		prefix = prefix << bits | (uint32_t)b;
	}
	c.key = prefix;
	double one = r->mass[prefix & 1023] / r->count[prefix & 1023];
	for (; c.equals < r->count[prefix & 1023] && (sum < enough || first); c.equals++, first = 0)
		sum += one;
	return c;
}

/* weights turns z into e^((z−top)/t), 0 below min_p and below least. */
static void weights(float *z, int32_t n, float top, float t, float min_p, float least)
{
	for (int32_t i = 0; i < n; i += VW) {
		vf x = vf_head(z + i, n - i), w = vf_exp((x - vf_set(top)) / vf_set(t));
		w = vf_keep_ge(w, w, vf_set(min_p));
		vf_put(z + i, vf_keep_ge(w, x, vf_set(least)), n - i);
	}
}

/* draw is the first id at which the sum of the weights exceeds u. */
static int32_t draw(const float *w, int32_t n, double u)
{
	double sum = 0;
	int32_t last = 0;
	for (int32_t i = 0; i < n; i++) {
		if (w[i] == 0)
			continue;
		last = i;
		if ((sum += (double)w[i]) > u)
			break;
	}
	return last;
}

/* choose is steps 3 to 10; −1 where no token is left. */
static int32_t choose(const vapp_sample *a, int64_t l, float *z, room *m)
{
	const vapp_sample_row *r = &a->rows[l];
	int32_t n = a->vocab;
	if (r->flags & ALLOWED)
		mask(z, a->allowed + l * a->words, n);
	for (int32_t i = 0; i < r->num_bias && i < a->max_bias; i++) {
		vapp_bias b = a->bias[l * a->max_bias + i];
		if (b.token >= 0 && b.token < n)
			z[b.token] += b.value;
	}
	penalize(a, r, z, m->seen);
	if (!usable(z, n))
		return -1;
	int32_t best = argmax(z, n);
	if (r->temperature < 1e-5f)
		return best;
	float top = z[best], least = -INFINITY;
	float t = r->temperature < 0.01f ? 0.01f : r->temperature;
	int nucleus = r->top_p < 1, some = r->top_k > 0 && r->top_k < n;
	if (some) {
		uint32_t key = descend(m, z, NULL, n, r->top_k).key;
		key = key & 0x80000000 ? key & 0x7fffffff : ~key;
		memcpy(&least, &key, 4);
	}
	float *w = z;
	if (nucleus) { /* the order of logits and the weights are both needed */
		w = (float *)m->seen;
		memcpy(w, z, (size_t)n * sizeof(float));
	}
	weights(w, n, top, t, r->min_p, least);
	if (nucleus) {
		cut c = descend(m, z, w, n, (double)r->top_p * total(w, n));
		for (int32_t i = 0; i < n; i++) {
			uint32_t key = ordered(z[i]);
			if (key < c.key || (key == c.key && c.equals-- <= 0))
				w[i] = 0;
		}
	}
	return draw(w, n, vapp_random(r->seed, r->position) * total(w, n));
}

static double log_sum_exp(const float *z, int32_t n)
{
	float top = z[argmax(z, n)];
	double sums[VW] = {0}, sum = 0;
	for (int32_t i = 0; i < n; i += VW) {
		float f[VW];
		for (int j = 0; j < VW; j++)
			f[j] = i + j < n ? z[i + j] : -INFINITY;
		vf_add_doubles(sums, vf_exp((i + VW <= n ? vf_load(z + i) : vf_load(f)) - vf_set(top)));
	}
	for (int j = 0; j < VW; j++)
		sum += sums[j];
	return (double)top + log(sum);
}

/* top_logprobs fills the k best, best first, the lowest id first among equals. */
static void top_logprobs(const float *z, int32_t n, int32_t k, double lse, int32_t *ids, float *probs)
{
	int32_t have = 0;
	float worst = -INFINITY;
	for (int32_t i = 0; i < n; i += VW) {
		if (have == k && i + VW <= n && !vf_any_gt(vf_load(z + i), vf_set(worst)))
			continue;
		for (int32_t j = i; j < n && j < i + VW; j++) {
			int32_t at = have;
			if (have == k && !(z[j] > worst))
				continue;
			if (have == k)
				at = k - 1;
			else
				have++;
			for (; at > 0 && z[j] > z[ids[at - 1]]; at--)
				ids[at] = ids[at - 1];
			ids[at] = j;
			worst = z[ids[have - 1]];
		}
	}
	for (int32_t i = 0; i < have; i++)
		probs[i] = (float)((double)z[ids[i]] - lse);
}

static void report(const vapp_sample *a, int64_t l, const float *raw, int32_t token)
{
	int32_t n = a->vocab, i = 0, k = a->rows[l].num_top, rank = 0;
	double lse = log_sum_exp(raw, n);
	a->logprob[l] = (float)((double)raw[token] - lse);
	for (; i + VW <= n; i += VW)
		rank += vf_count_ge(vf_load(raw + i), vf_set(raw[token]));
	for (; i < n; i++)
		rank += raw[i] >= raw[token];
	a->rank[l] = rank;
	k = k < a->max_top ? k : a->max_top;
	k = k < n ? k : n;
	if (k > 0)
		top_logprobs(raw, n, k, lse, a->top_ids + l * a->max_top, a->top_probs + l * a->max_top);
}

static int32_t one(const vapp_sample *a, int64_t l, room *m)
{
	const vapp_sample_row *r = &a->rows[l];
	float *z = a->logits + l * a->vocab;
	int32_t n = a->vocab, token = r->target;
	if (!usable(z, n))
		return -1;
	if (r->flags & GRAMMAR) {
		mask(z, a->grammar + l * a->words, n);
		if (!usable(z, n))
			return -1;
	}
	const float *raw = z;
	if (!(r->flags & TARGET)) {
		if (r->flags & LOGPROB) {
			memcpy(m->raw, z, (size_t)n * sizeof(float));
			raw = m->raw;
		}
		token = choose(a, l, z, m);
	}
	if (token >= n)
		return -1;
	if (token >= 0 && r->flags & LOGPROB)
		report(a, l, raw, token);
	return token;
}

void VAPP_NAME(sample)(const void *args, const vapp_call *c)
{
	const vapp_sample *a = args;
	room *m = room_of(a, c->part);
	int64_t from, to;
	vapp_share(c->rows[VAPP_PER_SAMPLE], c, &from, &to);
	for (int64_t l = from; l < to; l++) {
		a->sampled[l] = one(a, l, m);
		a->status[l] = a->sampled[l] < 0 ? NAN_ROW : 0;
	}
}
