/* linear.h: Y [rows,out] = X [rows,in] · Wᵀ (+ bias [out]) with packed weights.
 *
 * The bits of a result do not depend on the number of rows or parts: each output sums its
 * products in an order that depends only on variant and format. Packed layouts are described in
 * linear/panel.h. */
#ifndef VAPP_CPU_LINEAR_H
#define VAPP_CPU_LINEAR_H
#include <stdint.h>

/* Formats, numbered as kernels.Format; linear.go keeps the two equal. */
enum {
	VAPP_F32 = 1,
	VAPP_F16 = 2,
	VAPP_BF16 = 3,
	VAPP_Q8_0 = 6,
	VAPP_Q4_0 = 7,
	VAPP_Q4_1 = 8,
	VAPP_Q4_K = 9,
	VAPP_Q6_K = 10,
	VAPP_F8_E4M3 = 11,
	VAPP_F8_E5M2 = 12,
	VAPP_MXFP4 = 13,
	VAPP_Q5_0 = 14,
	VAPP_Q5_1 = 15,
	VAPP_Q2_K = 16,
	VAPP_Q3_K = 17,
	VAPP_Q5_K = 18,
	VAPP_IQ4_NL = 19,
	VAPP_I8 = 21,
	VAPP_I4 = 23,
	VAPP_IQ4_XS = 24,
	VAPP_IQ3_XXS = 25,
	VAPP_IQ3_S = 26,
	VAPP_IQ2_XXS = 27,
	VAPP_IQ2_XS = 28,
	VAPP_IQ2_S = 29,
	VAPP_IQ1_S = 30,
	VAPP_IQ1_M = 31,
	VAPP_TQ1_0 = 32,
	VAPP_TQ2_0 = 33,
	VAPP_NVFP4 = 34,
	VAPP_EXPANDED = 255, /* what the formats of linear/stored.h are unpacked to; in no checkpoint */
};

/* Scales of 8-bit floats, of VAPP_I8 and of VAPP_NVFP4, in the upper bits of a weight's format. */
enum {
	VAPP_SCALES = 256, /* times one of these */
	VAPP_NO_SCALES = 0,
	VAPP_CHANNEL_SCALES = 1, /* one for each output */
	VAPP_BLOCK_SCALES = 2,   /* one for each output and 128 inputs */
	VAPP_PANEL_SCALES = 3,   /* one for each panel and 128 inputs */
	VAPP_GROUP_SCALES = 4,   /* one for each output and 32 inputs */
};

/* Instruction sets. x and the sums are float, and a weight is the exact float that its format
 * means, with these exceptions: VAPP_AVX512_BF16 and VAPP_AMX round x to bf16 for all formats
 * except F32 and F16, and VAPP_AMX also rounds quantized weights to bf16 (linear/amx_quant.h).
 * VAPP_AVX512_BF16, VAPP_DOTPROD and VAPP_I8MM round x to 15 bits for the formats of
 * linear/int8/int8.h, and VAPP_I8MM rounds it to bf16 for VAPP_BF16. */
enum {
	VAPP_GENERIC = 0,
	VAPP_AVX2 = 1,   /* AVX2, FMA, F16C */
	VAPP_AVX512 = 2, /* AVX-512 F, BW, DQ, VL */
	VAPP_AMX = 3,    /* AVX512 and AVX-512 BF16, AMX-TILE, AMX-BF16 */
	VAPP_AMX_SOFT = 4, /* AMX with the tiles in memory, for tests */
	VAPP_AVX512_BF16 = 5, /* AVX512 and AVX-512 BF16, VBMI */
	VAPP_NEON = 6,    /* 64-bit ARM */
	VAPP_DOTPROD = 7, /* NEON and SDOT */
	VAPP_I8MM = 8,    /* DOTPROD and SMMLA, BFMMLA */
	VAPP_AMX_OUTSIDE = 9, /* AMX with exact codes; sums are scaled: linear/amx_quant.h */
	VAPP_AMX_OUTSIDE_SOFT = 10,
	VAPP_AVX2_PAIRS = 11, /* AVX2 without AVX-VNNI, with VAPP_INT8, for tests */
	VAPP_INT8 = 16,    /* plus one of the others: x as int8, linear/int8/int8.h */
	VAPP_W8A8 = 32,    /* plus one of the others: x as int8 with one scale for each row, linear/w8a8/w8a8.h */
};

/* vapp_nodes says which part of a machine's memory is near. A node is some of the threads, and
 * the memory whose accesses by them cross no link. Of every packed weight, each node's memory
 * has a range of panels in proportion to its threads: vapp_node_panel. */
typedef struct {
	int32_t node, nodes;    /* of the part, and how many there are; nodes 0: one */
	const int32_t *threads; /* [nodes+1]: the threads of the nodes before each */
} vapp_nodes;

/* vapp_node_panel returns the first of n panels in the memory of a node; n for the node behind
 * the last. */
static inline int64_t vapp_node_panel(const vapp_nodes *d, int64_t n, int32_t node)
{
	if (d->nodes < 2)
		return node > 0 ? n : 0;
	return n * d->threads[node] / d->threads[d->nodes];
}

enum { VAPP_TAKEN = 8 /* int64_t from one node's counter to the next: a cache line */ };

/* One call of Linear. w, shared and work are aligned to 64 bytes; ldx and ldy count floats. All
 * parts use the same shared and each part has its own work: LinearWorkspace gives both sizes. */
typedef struct {
	const void *w;     /* packed weight, LinearLayout bytes */
	const float *bias; /* [out], or NULL */
	const float *x;
	int64_t ldx;
	float *y;
	int64_t ldy;
	int32_t rows, in, out;
	int32_t format; /* as stored: VAPP_BF16 …, and scales */
	void *shared;
	int64_t shared_bytes;
	void *work; /* of this part */
	int64_t work_bytes;
	int64_t *taken; /* for each node, VAPP_TAKEN apart, a counter of its units taken by the parts of run, 0 before the first; NULL: each part has a fixed share */
	vapp_nodes nodes;
} vapp_linear;

typedef void (*vapp_linear_fn)(const vapp_linear *a, int part, int parts);

/* A kernel. With prepare_rows rows or more, all parts call prepare, which fills shared, and
 * wait for each other; then all call run. If prepare is NULL or there are fewer rows, run is
 * enough and shared is not read. x, y and w do not overlap. row unpacks row r of a weight to
 * dst [in], for an embedding with tied weights. */
typedef struct {
	vapp_linear_fn prepare;
	int32_t prepare_rows;
	vapp_linear_fn run;
	void (*row)(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);
} vapp_linear_kernel;

/* vapp_linear_for returns the kernel of a variant for a stored format, or NULL if this build
 * has none. The caller has checked that the CPU has the variant. */
const vapp_linear_kernel *vapp_linear_for(int variant, int format);

#endif
