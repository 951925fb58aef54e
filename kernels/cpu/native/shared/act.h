/* act.h: activation functions on vectors, and the gated activation of a row. */
#ifndef VAPP_CPU_ACT_H
#define VAPP_CPU_ACT_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "vec.h"

static inline vf vf_sigmoid(vf x) { return vf_set(1) / (vf_set(1) + vf_exp(vf_set(0) - x)); }

static inline vf vf_silu(vf x) { return x / (vf_set(1) + vf_exp(vf_set(0) - x)); }

/* (1 + tanh(u)) / 2 is 1 / (1 + e^−2u). */
static inline vf vf_gelu_tanh(vf x)
{
	vf cube = x * x * x;
	vf u = vf_set(1.5957691216057308f) * vf_fma(vf_set(0.044715f), cube, x);
	return x * vf_sigmoid(u);
}

/* GELU by the error function of the C library: one product of a tower has it. */
static inline vf vf_gelu(vf x)
{
	float f[VW];
	vf_store(f, x);
	for (int i = 0; i < VW; i++)
		f[i] = (float)(0.5 * (double)f[i] * erfc(-(double)f[i] * 0.70710678118654752));
	return vf_load(f);
}

static inline vf vf_act(int32_t act, vf x) { return act == VAPP_GELU_TANH ? vf_gelu_tanh(x) : act == VAPP_GELU ? vf_gelu(x) : vf_silu(x); }

static inline vf vf_gated(const vapp_activation *a, vf gate, vf up)
{
	if (a->kind != VAPP_CLAMPED)
		return vf_act(a->kind, gate) * up;
	vf limit = vf_set(a->limit);
	gate = vf_min(limit, gate); /* this order lets a NaN pass */
	up = vf_max(vf_set(-a->limit), vf_min(limit, up));
	return (up + vf_set(a->shift)) * (gate * vf_sigmoid(gate * vf_set(a->alpha)));
}

/* gated_row writes columns [i, end) of y: the gated activation of x [2·n]. */
static inline void gated_row(const vapp_activation *a, const float *x, int64_t n, int64_t i, int64_t end, float *y)
{
	for (; i < end; i += VW) {
		int64_t w = end - i;
		vf gate, up;
		if (!a->paired) {
			gate = vf_head(x + i, w);
			up = vf_head(x + n + i, w);
		} else if (w >= VW) {
			vf_pairs(x + 2 * i, &gate, &up);
		} else {
			float f[2 * VW] = {0};
			memcpy(f, x + 2 * i, (size_t)w * 8);
			vf_pairs(f, &gate, &up);
		}
		vf_put(y + i, vf_gated(a, gate, up), w);
	}
}

#endif
