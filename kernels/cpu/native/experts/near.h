/* near.h: the panels of a stack that are in the memory of a part's node. */
#ifndef VAPP_CPU_EXPERTS_NEAR_H
#define VAPP_CPU_EXPERTS_NEAR_H
#include <stdint.h>

#include "../shared/kernels.h"

/* near limits a call to the parts of its node, and the panels to those in the node's memory, if
 * every thread has a part. */
static inline void near(vapp_call *c, int64_t *first, int64_t *panels)
{
	const vapp_nodes *d = &c->nodes;
	if (d->nodes < 2 || c->parts != d->threads[d->nodes])
		return;
	*first = vapp_node_panel(d, *panels, d->node);
	*panels = vapp_node_panel(d, *panels, d->node + 1) - *first;
	c->part -= d->threads[d->node];
	c->parts = d->threads[d->node + 1] - d->threads[d->node];
}

#endif
