#include <stddef.h>

#include "shared/kernels.h"

void vapp_op_tokens(const void *, const vapp_call *);
void vapp_op_store_tokens(const void *, const vapp_call *);
void vapp_op_embed(const void *, const vapp_call *);
void vapp_op_angles(const void *, const vapp_call *);
void vapp_op_store_kv(const void *, const vapp_call *);
void vapp_op_gather(const void *, const vapp_call *);
void vapp_op_gather_last(const void *, const vapp_call *);
void vapp_op_concat(const void *, const vapp_call *);
void vapp_op_route(const void *, const vapp_call *);
void vapp_op_draft_input(const void *, const vapp_call *);
void vapp_op_verify(const void *, const vapp_call *);
void vapp_op_gather_accepted(const void *, const vapp_call *);
void vapp_op_patches(const void *, const vapp_call *);
void vapp_op_pool(const void *, const vapp_call *);
void vapp_op_standardize(const void *, const vapp_call *);
void vapp_op_resample(const void *, const vapp_call *);
void vapp_op_encoded(const void *, const vapp_call *);
void vapp_op_linear_prepare(const void *, const vapp_call *);
void vapp_op_linear(const void *, const vapp_call *);
void vapp_op_head_linear(const void *, const vapp_call *);
void vapp_dot_bf16(const void *, const vapp_call *);
#if defined(__x86_64__)
void vapp_attention_amx(const void *, const vapp_call *);
void vapp_attention_join_amx(const void *, const vapp_call *);
void vapp_attention_amx_soft(const void *, const vapp_call *);
void vapp_attention_pack_avx512bf16(const void *, const vapp_call *);
void vapp_attention_avx512bf16(const void *, const vapp_call *);
void vapp_attention_join_avx512bf16(const void *, const vapp_call *);
void vapp_attention_join_amx_soft(const void *, const vapp_call *);
#endif
void vapp_tiles_bf16(const void *, const vapp_call *);
void vapp_dot_int8(const void *, const vapp_call *);
void vapp_dot_int8_dotprod(const void *, const vapp_call *);
void vapp_dot_int8_i8mm(const void *, const vapp_call *);
void vapp_tiles_int8(const void *, const vapp_call *);

static vapp_fn plain(int op)
{
	switch (op) {
	case VAPP_OP_TOKENS:
		return vapp_op_tokens;
	case VAPP_OP_STORE_TOKENS:
		return vapp_op_store_tokens;
	case VAPP_OP_EMBED:
		return vapp_op_embed;
	case VAPP_OP_LINEAR_PREPARE:
		return vapp_op_linear_prepare;
	case VAPP_OP_LINEAR:
		return vapp_op_linear;
	case VAPP_OP_HEAD_LINEAR:
		return vapp_op_head_linear;
	case VAPP_OP_ANGLES:
		return vapp_op_angles;
	case VAPP_OP_STORE_KV:
		return vapp_op_store_kv;
	case VAPP_OP_GATHER:
		return vapp_op_gather;
	case VAPP_OP_GATHER_LAST:
		return vapp_op_gather_last;
	case VAPP_OP_CONCAT:
		return vapp_op_concat;
	case VAPP_OP_ROUTE:
		return vapp_op_route;
	case VAPP_OP_DRAFT_INPUT:
		return vapp_op_draft_input;
	case VAPP_OP_VERIFY:
		return vapp_op_verify;
	case VAPP_OP_GATHER_ACCEPTED:
		return vapp_op_gather_accepted;
	case VAPP_OP_PATCHES:
		return vapp_op_patches;
	case VAPP_OP_POOL:
		return vapp_op_pool;
	case VAPP_OP_STANDARDIZE:
		return vapp_op_standardize;
	case VAPP_OP_RESAMPLE:
		return vapp_op_resample;
	case VAPP_OP_ENCODED:
		return vapp_op_encoded;
	}
	return NULL;
}

#if defined(__x86_64__)
/* bf16_attention returns the kernels of attention that multiply bf16, or NULL. */
static vapp_fn bf16_attention(int op, int variant)
{
	const vapp_fn attention[][2] = {
		{vapp_attention_avx512bf16, vapp_attention_join_avx512bf16},
		{vapp_attention_amx, vapp_attention_join_amx},
#if !defined(VAPP_NO_SOFT_TILES)
		{vapp_attention_amx_soft, vapp_attention_join_amx_soft},
#endif
	};
	if (op == VAPP_OP_ATTENTION_PACK)
		return variant == VAPP_AVX512_BF16 ? vapp_attention_pack_avx512bf16 : NULL;
	int i = variant == VAPP_AVX512_BF16 ? 0 : variant == VAPP_AMX ? 1 : variant == VAPP_AMX_SOFT ? 2 : -1;
	if (i < 0 || i >= (int)(sizeof attention / sizeof *attention) || (op != VAPP_OP_ATTENTION && op != VAPP_OP_ATTENTION_JOIN))
		return NULL;
	return attention[i][op == VAPP_OP_ATTENTION_JOIN];
}
#endif

/* AVX-512 BF16 and AMX have their own kernels for Linear and attention, and use those of
 * AVX-512 for the other ops. */
vapp_fn vapp_kernel(int op, int variant)
{
	vapp_fn f = plain(op);
	if (f)
		return f;
#define VAPP_CASE(isa) \
	switch (op) { \
	case VAPP_OP_NORM: \
		return vapp_norm_##isa; \
	case VAPP_OP_ROPE: \
		return vapp_rope_##isa; \
	case VAPP_OP_LATENT_ROPE: \
		return vapp_latent_rope_##isa; \
	case VAPP_OP_ATTENTION: \
		return vapp_attention_##isa; \
	case VAPP_OP_ATTENTION_JOIN: \
		return vapp_attention_join_##isa; \
	case VAPP_OP_GLU: \
		return vapp_glu_##isa; \
	case VAPP_OP_ADD: \
		return vapp_add_##isa; \
	case VAPP_OP_GATE: \
		return vapp_gate_##isa; \
	case VAPP_OP_ACTIVATE: \
		return vapp_activate_##isa; \
	case VAPP_OP_SOFTCAP: \
		return vapp_softcap_##isa; \
	case VAPP_OP_CONV: \
		return vapp_conv_##isa; \
	case VAPP_OP_DELTA: \
		return vapp_delta_##isa; \
	case VAPP_OP_SAMPLE: \
		return vapp_sample_##isa; \
	case VAPP_OP_PROPOSE: \
		return vapp_propose_##isa; \
	case VAPP_OP_ADAPT_DOWN: \
		return vapp_adapt_down_##isa; \
	case VAPP_OP_ADAPT_UP: \
		return vapp_adapt_up_##isa; \
	case VAPP_OP_READ: \
		return vapp_read_##isa; \
	case VAPP_OP_FMA: \
		return vapp_fma_##isa; \
	} \
	return NULL;
	if (variant == VAPP_GENERIC) {
		VAPP_CASE(generic)
	}
#if defined(__x86_64__)
	if (op == VAPP_OP_DOT_BF16 && (variant == VAPP_AVX512 || variant == VAPP_AVX512_BF16 || variant == VAPP_AMX))
		return vapp_dot_bf16;
	if (op == VAPP_OP_DOT_INT8 && variant == VAPP_AMX)
		return vapp_tiles_int8;
	if (op == VAPP_OP_DOT_INT8 && variant >= VAPP_AVX512)
		return __builtin_cpu_supports("avx512vnni") ? vapp_dot_int8 : NULL;
	if (op == VAPP_OP_TILES_BF16 && variant == VAPP_AMX)
		return vapp_tiles_bf16;
	if (bf16_attention(op, variant))
		return bf16_attention(op, variant);
	if (variant == VAPP_AVX2) {
		VAPP_CASE(avx2)
	}
	if (variant == VAPP_AVX512 || variant == VAPP_AVX512_BF16 || variant == VAPP_AMX) {
		VAPP_CASE(avx512)
	}
#elif defined(__aarch64__)
	if (op == VAPP_OP_DOT_INT8 && variant == VAPP_DOTPROD)
		return vapp_dot_int8_dotprod;
	if (op == VAPP_OP_DOT_INT8 && variant == VAPP_I8MM)
		return vapp_dot_int8_i8mm;
	if (variant == VAPP_NEON || variant == VAPP_DOTPROD || variant == VAPP_I8MM) {
		VAPP_CASE(neon)
	}
#endif
	return NULL;
}
