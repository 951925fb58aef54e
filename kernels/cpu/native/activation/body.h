/* body.h: gated activations, other elementwise ops and adapters. */
#include <stdint.h>

#include "../shared/act.h"
#include "../shared/kernels.h"
#include "../shared/vec.h"

/* The parts share the columns, so that a decode step with one row has work for all of them. */
void VAPP_NAME(glu)(const void *args, const vapp_call *c)
{
	const vapp_glu *a = args;
	int64_t from, to, n = a->cols, rows = c->rows[a->symbol];
	vapp_share((rows * n + VW - 1) / VW, c, &from, &to);
	for (int64_t t = from * VW / n; t < rows && t * n < to * VW; t++) {
		int64_t i = from * VW - t * n, end = to * VW - t * n;
		gated_row(&a->act, a->x + t * 2 * n, n, i > 0 ? i : 0, end < n ? end : n, a->y + t * n);
	}
}

/* numbers sets [from, to) to a part's share of all elements: whole vectors except the last. */
static inline void numbers(const vapp_elements *a, const vapp_call *c, int64_t *from, int64_t *to)
{
	int64_t n = (int64_t)c->rows[a->symbol] * a->cols;
	vapp_share((n + VW - 1) / VW, c, from, to);
	*from *= VW;
	*to = *to * VW < n ? *to * VW : n;
}

void VAPP_NAME(add)(const void *args, const vapp_call *c)
{
	const vapp_elements *a = args;
	int64_t i, to;
	vf scale = vf_set(a->scale ? *a->scale : 1);
	for (numbers(a, c, &i, &to); i < to; i += VW)
		vf_put(a->x + i, (vf_head(a->x + i, to - i) + vf_head(a->other + i, to - i)) * scale, to - i);
}

void VAPP_NAME(gate)(const void *args, const vapp_call *c)
{
	const vapp_elements *a = args;
	int64_t i, to;
	numbers(a, c, &i, &to);
	if (!a->row_factor) {
		for (; i < to; i += VW)
			vf_put(a->x + i, vf_head(a->x + i, to - i) * vf_sigmoid(vf_head(a->other + i, to - i)), to - i);
		return;
	}
	while (i < to) {
		int64_t row = i / a->cols, end = (row + 1) * a->cols < to ? (row + 1) * a->cols : to;
		vf factor = vf_sigmoid(vf_set(a->other[row]));
		for (; i < end; i += VW)
			vf_put(a->x + i, vf_head(a->x + i, end - i) * factor, end - i);
		i = end;
	}
}

void VAPP_NAME(activate)(const void *args, const vapp_call *c)
{
	const vapp_elements *a = args;
	int64_t i, to;
	for (numbers(a, c, &i, &to); i < to; i += VW)
		vf_put(a->x + i, vf_act(a->act, vf_head(a->x + i, to - i)), to - i);
}

void VAPP_NAME(softcap)(const void *args, const vapp_call *c)
{
	const vapp_elements *a = args;
	int64_t i, to;
	vf cap = vf_set(a->cap);
	for (numbers(a, c, &i, &to); i < to; i += VW)
		vf_put(a->x + i, cap * vf_tanh(vf_head(a->x + i, to - i) / cap), to - i);
}

#include "adapt.h"
