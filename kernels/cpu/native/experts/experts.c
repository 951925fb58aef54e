/* experts.c: the phases of a mixture of experts. */
#include "../shared/experts.h"
#include "../linear/panel.h"
#include "near.h"

static int64_t rows_of(const vapp_experts *a, const vapp_call *c)
{
	int64_t rows = c->rows[a->symbol] - (int64_t)a->row0;
	return rows < 0 ? 0 : rows < a->most ? rows : a->most;
}

/* sort counts the picks of each expert, then assigns their places. The picks of an expert keep
 * the order of rows and k. Between the two passes, place holds each pick's index within its
 * expert. */
static void sort(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	int64_t picks = rows_of(a, c) * a->top;
	const int32_t *ids = a->ids + (int64_t)a->row0 * a->top;
	int32_t sum = 0, active = 0;
	memset(a->first, 0, ((size_t)a->experts + 1) * sizeof *a->first);
	for (int64_t i = 0; i < picks; i++)
		a->place[i] = ids[i] < 0 || ids[i] >= a->experts ? -1 : a->first[ids[i]]++;
	for (int32_t e = 0; e < a->experts; e++) {
		int32_t n = a->first[e];
		a->first[e] = sum;
		a->before[e] = active;
		sum += n;
		active += n > 0;
	}
	a->first[a->experts] = sum;
	for (int64_t i = 0; i < picks; i++)
		if (a->place[i] >= 0)
			a->place[i] += a->first[ids[i]];
}

static void gather(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	int64_t from, to, n = a->cols;
	vapp_share(rows_of(a, c) * a->top, c, &from, &to);
	for (int64_t i = from; i < to; i++)
		if (a->place[i] >= 0)
			memcpy(a->picked + a->place[i] * n, a->x + (a->row0 + i / a->top) * n, (size_t)n * sizeof *a->x);
}

/* expert_of returns the product of expert e with its picks. */
static vapp_linear expert_of(const vapp_experts *a, const vapp_stack *s, int32_t e, int part)
{
	int64_t first = a->first[e], rows = a->first[e + 1] - first;
	vapp_linear l = {
		.w = s->w + e * s->bytes, .x = s->x + first * s->in, .ldx = s->in, .y = s->y + first * s->out, .ldy = s->out,
		.bias = s->bias ? s->bias + (int64_t)e * s->out : NULL, .rows = (int32_t)rows, .in = s->in, .out = s->out, .format = s->format,
		.work = a->work + a->work_bytes * part, .work_bytes = a->work_bytes,
	};
	/* The experts before this one have at most first/tile + before tiles: each rounds up once. */
	l.shared = a->shared + (first / s->tile + a->before[e]) * s->tile_bytes;
	l.shared_bytes = (rows + s->tile - 1) / s->tile * s->tile_bytes;
	return l;
}

static void prepare(const vapp_experts *a, const vapp_stack *s, const vapp_call *c)
{
	if (!s->kernel->prepare || rows_of(a, c) == 0)
		return;
	for (int32_t e = 0; e < a->experts; e++) {
		int32_t rows = a->first[e + 1] - a->first[e];
		vapp_linear l = expert_of(a, s, e, c->part);
		if (rows > 0 && rows >= s->kernel->prepare_rows)
			s->kernel->prepare(&l, c->part, c->parts);
	}
}

/* The cost of reading a panel, in rows. */
enum { PANEL_COST = 4 };

/* multiply distributes the panels of all experts that are in one node's memory by their cost: a
 * part computes the panels that begin within its share. */
static void multiply(const vapp_experts *a, const vapp_stack *s, const vapp_call *c)
{
	int64_t all = (s->out + PANEL - 1) / PANEL, panels = all, first = 0, from, to, at = 0;
	vapp_call part = *c;
	if (rows_of(a, c) == 0)
		return;
	near(&part, &first, &panels);
	int64_t active = a->before[a->experts - 1] + (a->first[a->experts] > a->first[a->experts - 1]);
	vapp_share(panels * (a->first[a->experts] + active * PANEL_COST), &part, &from, &to);
	for (int32_t e = 0; e < a->experts && at < to; e++) {
		int32_t rows = a->first[e + 1] - a->first[e];
		int64_t cost = rows + PANEL_COST, p0 = 0, p1 = panels;
		if (rows == 0)
			continue;
		if (from > at)
			p0 = (from - at + cost - 1) / cost;
		if (to - at < panels * cost)
			p1 = (to - at + cost - 1) / cost;
		at += panels * cost;
		if (p0 >= p1)
			continue;
		vapp_linear l = expert_of(a, s, e, c->part);
		p0 += first, p1 += first;
		l.w = (const uint8_t *)l.w + p0 * panel_bytes(s->format, s->in);
		l.y += p0 * PANEL;
		l.bias = l.bias ? l.bias + p0 * PANEL : NULL;
		l.out = (int32_t)((p1 == all ? s->out : p1 * PANEL) - p0 * PANEL);
		s->kernel->run(&l, 0, 1);
	}
}

static void prepare_up(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	prepare(a, &a->gate_up, c);
}

static void up(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	multiply(a, &a->gate_up, c);
}

static void activate(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	if (rows_of(a, c) == 0)
		return;
	vapp_glu g = {.x = a->up, .y = a->act, .symbol = VAPP_PER_TOKEN, .cols = a->width, .act = a->activation};
	int32_t picks = a->first[a->experts]; /* the count for VAPP_PER_TOKEN */
	vapp_call all = {.part = c->part, .parts = c->parts, .rows = &picks};
	a->glu(&g, &all);
}

static void prepare_down(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	prepare(a, &a->down, c);
}

static void down(const void *args, const vapp_call *c)
{
	const vapp_experts *a = args;
	multiply(a, &a->down, c);
}

/* Sums run in double in the order of k, as in the oracle; a block of columns at a time. */
static void sum(const void *args, const vapp_call *c)
{
	enum { BLOCK = 256 };
	const vapp_experts *a = args;
	int64_t from, to, n = a->cols;
	double s[BLOCK];
	vapp_share(rows_of(a, c), c, &from, &to);
	for (int64_t t = from; t < to; t++)
		for (int64_t i = 0; i < n; i += BLOCK) {
			int64_t some = n - i < BLOCK ? n - i : BLOCK;
			float *y = a->y + (a->row0 + t) * n + i;
			memset(s, 0, sizeof s);
			for (int32_t k = 0; k < a->top; k++) {
				int32_t place = a->place[t * a->top + k];
				double w = a->weights[(a->row0 + t) * a->top + k];
				if (place < 0)
					continue;
				const float *x = a->picked + place * n + i;
				for (int64_t j = 0; j < some; j++)
					s[j] += w * (double)x[j];
			}
			for (int64_t j = 0; j < some; j++)
				y[j] = (float)s[j];
		}
}

vapp_fn vapp_experts_phase(int phase)
{
	static const vapp_fn phases[VAPP_EXPERTS_PHASES] = {sort, gather, prepare_up, up, activate, prepare_down, down, sum};
	return phase < 0 || phase >= VAPP_EXPERTS_PHASES ? NULL : phases[phase];
}
