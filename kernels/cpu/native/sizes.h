/* sizes.h: sizes of the structs of kernels.h, to compare with their Go mirrors. */
#ifndef VAPP_CPU_SIZES_H
#define VAPP_CPU_SIZES_H
#include "shared/kernels.h"

static inline int vapp_size(int i)
{
	static const int sizes[] = {
		sizeof(vapp_pages), sizeof(vapp_tokens), sizeof(vapp_store_tokens), sizeof(vapp_embed), sizeof(vapp_norm),
		sizeof(vapp_angles), sizeof(vapp_rope), sizeof(vapp_attention), sizeof(vapp_store_kv), sizeof(vapp_glu),
		sizeof(vapp_gather), sizeof(vapp_sample), sizeof(vapp_linear_op), sizeof(vapp_limit),
		sizeof(vapp_elements), sizeof(vapp_concat), sizeof(vapp_gather_last), sizeof(vapp_route), sizeof(vapp_conv), sizeof(vapp_delta),
		sizeof(vapp_draft_input), sizeof(vapp_verify), sizeof(vapp_gather_accepted), sizeof(vapp_propose), sizeof(vapp_adapt), sizeof(vapp_latent_rope), sizeof(vapp_head_linear),
	};
	return sizes[i];
}

#endif
