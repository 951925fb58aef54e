/* amx.h: the kernels of w8a8.h on AMX tiles. */
#ifndef VAPP_CPU_LINEAR_W8A8_AMX_H
#define VAPP_CPU_LINEAR_W8A8_AMX_H
#include <stdint.h>

#include "../../shared/linear.h"

enum {
	W8_AMX_ROWS = 13, /* fewer rows use vectors: a tile costs the same when it is not full */
	W8_AMX_K = 1024   /* k's of a panel that stay in the first cache */
};

const vapp_linear_kernel *vapp_linear_w8a8_amx(void);
const vapp_linear_kernel *vapp_linear_w8a8_amx_soft(void);

#endif
