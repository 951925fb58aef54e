/* amx.h: the functions that the kernels on AMX-INT8 tiles take from those on vectors. */
#ifndef VAPP_CPU_LINEAR_INT8_AMX_H
#define VAPP_CPU_LINEAR_INT8_AMX_H
#include <stdint.h>

#include "../../shared/linear.h"
#include "../panel.h"
#include "int8.h"

enum {
	INT8_AMX_ROWS = 13, /* fewer rows use vectors: a tile costs the same when it is not full */
	INT8_AMX_WORK_BYTES = INT8_BLOCK * PANEL + 2 * 2 * TILE_ROWS * 16 * 4 + 2 * TILE_ROWS * PANEL * 4
};

/* vapp_int8_unpack writes the codes of groups [g0, g1) of a panel to `to`, in the layout of
 * Q8_0: 1 KiB each. For Q8_0 it returns NULL. */
const uint8_t *vapp_int8_unpack(int32_t format, const uint8_t *panel, int64_t g0, int64_t g1, uint8_t *to);

const vapp_linear_kernel *vapp_linear_int8_amx(int format);
const vapp_linear_kernel *vapp_linear_int8_amx_soft(int format);

#endif
