/* body.h: a row of logits to a token. The order of steps and the choice among equal values are
 * those of kernels/ref/sample.go; its sorts are replaced by a search of the bits of the numbers
 * from the top (radix selection). */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../shared/kernels.h"
#include "../shared/vec.h"

enum { GRAMMAR = 1, ALLOWED = 2, LOGPROB = 4, TARGET = 8 };
enum { NAN_ROW = 1 };
#define BINS VAPP_SAMPLE_BINS

/* workspace is the work of one part, SampleWorkspace bytes. */
typedef struct {
	double *mass;   /* [BINS] */
	int32_t *count; /* [BINS] */
	int32_t *seen;  /* [vocab] counts; then the ids of a list */
	float *raw;     /* [vocab] logits before the edits */
	float *w;       /* [vocab] weights */
} workspace;

static workspace workspace_of(const vapp_sample *a, int part)
{
	workspace r;
	r.mass = (double *)(a->work + a->work_bytes * part);
	r.count = (int32_t *)(r.mass + BINS);
	r.seen = r.count + BINS;
	r.raw = (float *)(r.seen + a->vocab);
	r.w = r.raw + a->vocab;
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

/* usable reports whether no logit is NaN or +Inf and at least one is finite. */
static int usable(const float *z, int32_t n)
{
	const vf most = vf_set(3.40282347e38f);
	vf t = vf_set(-INFINITY);
	int32_t i = 0, good = 0;
	for (; i + VW <= n; i += VW) {
		vf v = vf_load(z + i);
		t = vf_max(v, t);
		good += vf_count_ge(most, v);
	}
	float top = vf_top(t);
	for (; i < n; i++) {
		good += z[i] <= 3.40282347e38f;
		top = z[i] > top ? z[i] : top;
	}
	return good == n && top >= -3.40282347e38f;
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
			volatile float all = r->frequency * (float)n; /* rounded before the subtraction */
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

#define CHUNK 1024 /* weights for which a sum is stored */

/* total returns the sum of the weights, added in order in chunks; sums gets the sum of each
 * chunk. */
static double total(const float *w, int32_t n, double *sums)
{
	double all = 0;
	for (int32_t at = 0; at < n; at += CHUNK) {
		int32_t end = n - at < CHUNK ? n : at + CHUNK, i = at;
		double lanes[VW] = {0}, sum = 0;
		for (; i + VW <= end; i += VW)
			vf_add_doubles(lanes, vf_load(w + i));
		for (int j = 0; j < VW; j++)
			sum += lanes[j];
		for (; i < end; i++)
			sum += (double)w[i];
		all += sums[at / CHUNK] = sum;
	}
	return all;
}

/* cut is where a walk from the largest value down ends: the bits of the last value, and how
 * many of the values equal to it are taken. */
typedef struct {
	uint32_t key;
	int32_t equals;
} cut;

/* descend walks z from the largest value down until the sum of what it took reaches enough. A
 * value counts w[i], or 1 if w is NULL. The first value is always taken. */
static cut descend(workspace *r, const float *z, const float *w, int32_t n, double enough)
{
	static const int shifts[3] = {21, 10, 0};
	uint32_t prefix = 0;
	double sum = 0;
	cut c = {0, 0};
	int first = 1;
	for (int level = 0; level < 3; level++) {
		int shift = shifts[level], bits = level == 2 ? 10 : 11, b;
		memset(r->mass, 0, BINS * sizeof *r->mass);
		memset(r->count, 0, BINS * sizeof *r->count);
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
		if (b < 0 || last != b) { /* the walk ended before this bin, or after all bins */
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

/* weights fills w with e^((z−top)/t), and with 0 below min_p. */
static void weights(const float *z, float *w, int32_t n, float top, float t, float min_p)
{
	for (int32_t i = 0; i < n; i += VW) {
		vf v = vf_exp((vf_head(z + i, n - i) - vf_set(top)) / vf_set(t));
		vf_put(w + i, vf_keep_ge(v, v, vf_set(min_p)), n - i);
	}
}

/* draw returns the index of the first weight at which the sum exceeds u. If rounding leaves
 * none, it returns the last index whose weight is not 0. */
static int32_t draw(const float *w, int32_t n, const double *sums, double u)
{
	double before = 0;
	for (int32_t at = 0; at < n; at += CHUNK) {
		double sum = before;
		before += sums[at / CHUNK];
		if (before <= u)
			continue;
		for (int32_t i = at; i < n && i < at + CHUNK; i++)
			if (w[i] != 0 && (sum += (double)w[i]) > u)
				return i;
	}
	while (n > 1 && w[n - 1] == 0)
		n--;
	return n - 1;
}

/* list is the remaining tokens in the order of ids; ids is NULL while all tokens remain. */
typedef struct {
	int32_t n, *ids;
	float *z, *w;
} list;

/* keep removes tokens whose value in by, which is z or w, is below least. */
static void keep(list *l, const float *by, float least, int32_t *ids)
{
	int32_t k = 0;
	for (int32_t i = 0; i < l->n; i += VW) {
		if (i + VW <= l->n && !vf_count_ge(vf_load(by + i), vf_set(least)))
			continue;
		for (int32_t j = i; j < l->n && j < i + VW; j++) {
			if (!(by[j] >= least))
				continue;
			float w = l->w[j];
			ids[k] = l->ids ? l->ids[j] : j;
			l->z[k] = l->z[j], l->w[k] = w;
			k++;
		}
	}
	l->n = k, l->ids = ids;
}

static float value(uint32_t key)
{
	float f;
	key = key & 0x80000000 ? key & 0x7fffffff : ~key;
	memcpy(&f, &key, 4);
	return f;
}

/* top_k keeps the logits that are not less than the k-th largest. First it takes the maximum of
 * each group of tokens: the k-th largest maximum is a bound that leaves few tokens to search. */
static void top_k(list *l, int32_t k, workspace *m)
{
	enum { GROUP = 64 };
	int32_t groups = l->n / GROUP;
	if (k <= groups) {
		for (int32_t g = 0; g < groups; g++) {
			vf t = vf_set(-INFINITY);
			for (int i = 0; i < GROUP; i += VW)
				t = vf_max(vf_load(l->z + g * GROUP + i), t);
			l->w[g] = vf_top(t);
		}
		keep(l, l->z, value(descend(m, l->w, NULL, groups, k).key), m->seen);
	}
	keep(l, l->z, value(descend(m, l->z, NULL, l->n, k).key), m->seen);
}

/* top_p keeps the best tokens whose preceding weights sum to less than p of all. When the
 * tokens above a bound are enough, those below the bound are removed first. */
static void top_p(list *l, float p, workspace *m)
{
	double enough = (double)p * total(l->w, l->n, m->mass);
	for (float least = 0x1p-4f; least > 0x1p-40f; least *= 0x1p-4f) {
		vf acc = vf_set(0);
		for (int32_t i = 0; i < l->n; i += VW) {
			vf v = vf_head(l->w + i, l->n - i);
			acc = acc + vf_keep_ge(v, v, vf_set(least));
		}
		if ((double)vf_sum(acc) > enough * 1.01) { /* far beyond the rounding of this sum */
			keep(l, l->w, least, m->seen);
			break;
		}
	}
	cut c = descend(m, l->z, l->w, l->n, enough);
	float least = value(c.key);
	for (int32_t i = 0; i < l->n; i++)
		if (l->z[i] < least || (l->z[i] == least && c.equals-- <= 0))
			l->w[i] = 0;
}

/* choose does steps 3 to 10; it returns −1 if no token is left. */
static int32_t choose(const vapp_sample *a, int64_t l, float *z, workspace *m)
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
	float top = z[best], t = r->temperature < 0.01f ? 0.01f : r->temperature;
	list left = {n, NULL, z, m->w};
	if (r->top_k > 0 && r->top_k < n)
		top_k(&left, r->top_k, m);
	weights(left.z, left.w, left.n, top, t, r->min_p);
	if (r->top_p < 1)
		top_p(&left, r->top_p, m);
	double all = total(left.w, left.n, m->mass);
	int32_t at = draw(left.w, left.n, m->mass, vapp_random(r->seed, r->position) * all);
	return left.ids ? left.ids[at] : at;
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

/* top_logprobs fills the k best, best first; among equals the lowest id comes first. */
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

static int32_t one(const vapp_sample *a, int64_t l, workspace *m)
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
	workspace m = workspace_of(a, c->part);
	int64_t from, to;
	vapp_share(c->rows[VAPP_PER_SAMPLE], c, &from, &to);
	for (int64_t l = from; l < to; l++) {
		a->sampled[l] = one(a, l, &m);
		a->status[l] = a->sampled[l] < 0 ? NAN_ROW : 0;
	}
}

/* The rows are those of a draft head: sequences. */
void VAPP_NAME(propose)(const void *args, const vapp_call *c)
{
	const vapp_propose *a = args;
	int64_t from, to;
	vapp_share(c->rows[VAPP_SEQS], c, &from, &to);
	for (int64_t s = from; s < to; s++)
		a->drafts[s * a->of + a->n] = a->ids[s] = argmax(a->logits + s * a->vocab, a->vocab);
}
