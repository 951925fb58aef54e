/* heads.c: a product of each head with a matrix of a stack. */
#include "../linear/panel.h"
#include "../shared/kernels.h"
#include "near.h"

/* A part takes a range of the panels of all heads in order, and prepares x of each head that it
 * multiplies on its own: there are more heads than threads, or few panels. */
void vapp_op_head_linear(const void *args, const vapp_call *c)
{
	const vapp_head_linear *a = args;
	int64_t all = (a->a.out + PANEL - 1) / PANEL, panels = all, first = 0, from, to;
	vapp_call part = *c;
	near(&part, &first, &panels);
	vapp_share(panels * a->heads, &part, &from, &to);
	while (from < to) {
		int64_t h = from / panels, p0 = from % panels, n = to - from < panels - p0 ? to - from : panels - p0;
		from += n, p0 += first;
		vapp_linear l = a->a;
		l.rows = c->rows[a->symbol];
		l.w = (const uint8_t *)l.w + h * a->bytes + p0 * panel_bytes(l.format, l.in);
		l.x += h * a->x;
		l.y += h * a->y + p0 * PANEL;
		l.out = (int32_t)((p0 + n == all ? l.out : (p0 + n) * PANEL) - p0 * PANEL);
		l.shared = a->work + a->stride * c->part;
		l.work = (uint8_t *)l.shared + l.shared_bytes;
		if (a->kernel->prepare && l.rows >= a->kernel->prepare_rows)
			a->kernel->prepare(&l, 0, 1);
		a->kernel->run(&l, 0, 1);
	}
}
