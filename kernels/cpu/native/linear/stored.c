/* stored.c: the kernels of stored.h, for all variants. */
#include "../shared/kernels.h"
#include "amx_quant.h"
#include "stored.h"

const float vapp_expanded_tables[8][16] = {
    [EXPANDED_IQ2 % 8] = {1, 3.125f, 5.375f, 0, 0, 0, 0, 0, -1, -3.125f, -5.375f},
    [EXPANDED_IQ3_XXS % 8] = {1, 3, 5, 7, 9, 11, 13, 15.5f, -1, -3, -5, -7, -9, -11, -13, -15.5f},
    [EXPANDED_IQ3_S % 8] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},
    [EXPANDED_IQ1 % 8] = {-0.875f, 0.125f, 1.125f, 0, 0, 0, 0, 0, -1.125f, -0.125f, 0.875f},
    [EXPANDED_TQ % 8] = {-1, 0, 1, 2}};

static int32_t expanded_format(int32_t format) {
	switch (format) {
	case VAPP_IQ3_XXS: return VAPP_EXPANDED + VAPP_SCALES * EXPANDED_IQ3_XXS;
	case VAPP_IQ3_S: return VAPP_EXPANDED + VAPP_SCALES * EXPANDED_IQ3_S;
	case VAPP_IQ1_S:
	case VAPP_IQ1_M: return VAPP_EXPANDED + VAPP_SCALES * EXPANDED_IQ1;
	case VAPP_TQ1_0:
	case VAPP_TQ2_0: return VAPP_EXPANDED + VAPP_SCALES * EXPANDED_TQ;
	default: return VAPP_EXPANDED + VAPP_SCALES * EXPANDED_IQ2;
	}
}

static void prepare(const vapp_linear_kernel *inner, const vapp_linear *a, int part, int parts) {
	vapp_linear x = *a;
	x.format = expanded_format(a->format);
	inner->prepare(&x, part, parts);
}

/* run takes units as the other kernels do: of few panels, the rows are cut too, and a part
 * multiplies a panel with a chunk of them. */
static __attribute__((noinline)) void run(const vapp_linear_kernel *inner, vapp_expand_fn expand, const vapp_linear *a, int part, int parts) {
	linear_grid g = grid_of(a, TILE_ROWS, part, parts);
	int64_t bytes = panel_bytes(VAPP_EXPANDED, a->in), each = panel_bytes(a->format, a->in), most = stored_panels(a->in), have = -1;
	uint8_t *to = a->work;
	vapp_linear x = *a;
	x.format = expanded_format(a->format);
	x.w = to;
	x.work = to + most * bytes;
	x.work_bytes = a->work_bytes - most * bytes;
	x.taken = NULL;
	x.nodes = (vapp_nodes){0};
	for (int64_t u; (u = linear_unit(a, &g)) >= 0;) {
		int64_t panel = u / g.chunks, n = 1;
		if (g.chunks == 1) {
			n = g.last - u < most ? g.last - u : most;
			g.next = u + n;
		}
		for (int64_t i = 0; i < n && (n > 1 || panel != have); i++)
			expand(a->format, (const uint8_t *)a->w + (panel + i) * each, a->in / 256, to + i * bytes);
		have = n > 1 ? -1 : panel;
		x.out = (int32_t)((panel + n) * PANEL < a->out ? n * PANEL : a->out - panel * PANEL);
		x.y = a->y + panel * PANEL;
		x.bias = a->bias ? a->bias + panel * PANEL : NULL;
		inner->run(&x, (int)(u % g.chunks), (int)g.chunks);
	}
}

/* row copies a block's bytes out of the panel and decodes them. */
static void row(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst) {
	(void)out;
	const int64_t size = stored_block(format);
	const uint8_t *p = (const uint8_t *)w + r / PANEL * panel_bytes(format, in) + r % PANEL;
	uint8_t block[128];
	for (int64_t k = 0; k < in; k += 256) {
		for (int64_t i = 0; i < size; i++, p += PANEL) block[i] = *p;
		vapp_dequantize(format, block, 256, dst + k);
	}
}

/* A kernel prepares x for as many rows as the one of VAPP_EXPANDED does. */
#define STORED(name, inner, rows, expand) \
	static void prepare_##name(const vapp_linear *a, int part, int parts) { prepare(inner, a, part, parts); } \
	static void run_##name(const vapp_linear *a, int part, int parts) { run(inner, expand, a, part, parts); } \
	static const vapp_linear_kernel name = {prepare_##name, rows, run_##name, row};

static void run_generic(const vapp_linear *a, int part, int parts) {
	run(vapp_linear_generic(VAPP_EXPANDED), vapp_expand_generic, a, part, parts);
}
static const vapp_linear_kernel generic = {NULL, 0, run_generic, row};

#if defined(__x86_64__)
STORED(avx2, vapp_linear_avx2(VAPP_EXPANDED), 2, vapp_expand_avx2)
STORED(avx512, vapp_linear_avx512(VAPP_EXPANDED), 2, vapp_expand_avx512)
STORED(bf16, vapp_linear_bf16(VAPP_EXPANDED), DECODE_ROWS + 1, vapp_expand_avx512)
STORED(amx, vapp_linear_amx_quant(VAPP_EXPANDED, 0), 3, vapp_expand_avx512)
#if !defined(VAPP_NO_SOFT_TILES)
STORED(amx_soft, vapp_linear_amx_quant_soft(VAPP_EXPANDED, 0), 3, vapp_expand_avx512)
#endif
#elif defined(__aarch64__)
STORED(neon, vapp_linear_neon(VAPP_EXPANDED), 2, vapp_expand_generic)
#endif

const vapp_linear_kernel *vapp_linear_stored(int variant) {
	switch (variant) {
	case VAPP_GENERIC: return &generic;
#if defined(__x86_64__)
	case VAPP_AVX2: return &avx2;
	case VAPP_AVX512: return &avx512;
	case VAPP_AVX512_BF16: return &bf16;
	case VAPP_AMX: return &amx;
#if !defined(VAPP_NO_SOFT_TILES)
	case VAPP_AMX_SOFT: return &amx_soft;
#endif
#elif defined(__aarch64__)
	case VAPP_NEON:
	case VAPP_DOTPROD:
	case VAPP_I8MM: return &neon;
#endif
	}
	return NULL;
}
