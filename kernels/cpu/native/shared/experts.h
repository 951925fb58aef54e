/* experts.h: a mixture of experts: y = Σ weights[k] · mlp of expert ids[k] of x.
 *
 * A pick is a row and one of its experts. The picks of a chunk of rows are sorted by expert, so
 * that each expert's matrices are read once for all of its rows; experts without picks are not
 * read. */
#ifndef VAPP_CPU_EXPERTS_H
#define VAPP_CPU_EXPERTS_H
#include <stdint.h>

#include "kernels.h"
#include "linear.h"

/* One of the two products: the weights of all experts, one after the other. */
typedef struct {
	const uint8_t *w;
	const float *bias; /* [experts, out], or NULL */
	const float *x;    /* [picks, in] */
	float *y;          /* [picks, out] */
	const vapp_linear_kernel *kernel;
	int64_t bytes;      /* bytes of one expert's weight */
	int64_t tile_bytes; /* bytes of `tile` rows of x as kernel's prepare writes them */
	int32_t in, out, format, tile;
} vapp_stack;

/* The phases run one after the other, on the rows [row0, row0 + most) that exist. In sorted
 * order are picked [rows·top, cols] (the inputs, and then the outputs of the experts), up
 * [rows·top, 2·width] and act [rows·top, width]. */
typedef struct {
	const float *x;
	const int32_t *ids;
	const float *weights;
	float *y;
	vapp_stack gate_up, down;
	vapp_fn glu;
	int32_t *first;  /* [experts + 1]: where an expert's picks begin */
	int32_t *before; /* [experts]: how many experts before it have picks */
	int32_t *place;  /* [rows·top]: position of a pick in sorted order; below 0: none */
	float *picked, *up, *act;
	uint8_t *shared, *work;
	int64_t work_bytes; /* for each part */
	int32_t symbol, experts, top, cols, width, row0, most, pad;
	vapp_activation activation;
	int32_t pad2;
} vapp_experts;

enum {
	VAPP_EXPERTS_SORT, /* one part */
	VAPP_EXPERTS_GATHER,
	VAPP_EXPERTS_PREPARE_UP,
	VAPP_EXPERTS_UP,
	VAPP_EXPERTS_ACTIVATE,
	VAPP_EXPERTS_PREPARE_DOWN,
	VAPP_EXPERTS_DOWN,
	VAPP_EXPERTS_SUM,
	VAPP_EXPERTS_PHASES
};

vapp_fn vapp_experts_phase(int phase);

#endif
