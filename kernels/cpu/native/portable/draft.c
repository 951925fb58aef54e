#include <string.h>

#include "../shared/kernels.h"

/* The ops between a step's samples and the next proposals. map has a number for each token row:
 * NONE for a row that is not sampled, REJECTED for one that is not accepted, else the first
 * sampled row that names it. */
enum { NONE = -1, REJECTED = -2 };

static void fill(int32_t *map, const int32_t *rows, const vapp_call *c)
{
	for (int32_t t = 0; t < c->rows[VAPP_PER_TOKEN]; t++)
		map[t] = NONE;
	for (int32_t r = c->rows[VAPP_PER_SAMPLE] - 1; r >= 0; r--)
		map[rows[r]] = r;
}

void vapp_op_draft_input(const void *args, const vapp_call *c)
{
	const vapp_draft_input *a = args;
	fill(a->map, a->rows, c);
	for (int32_t s = 0; s < c->rows[VAPP_SEQS]; s++)
		for (int32_t t = a->first[s], end = a->first[s + 1]; t < end; t++) {
			int32_t next = t + 1 < end ? a->ids[t + 1] : 0;
			if (a->map[t] != NONE)
				next = a->sampled[a->map[t]];
			a->out[t] = next < 0 ? 0 : next;
		}
}

/* is_accepted reports whether row t is what was sampled for the row before it. Row t is
 * sampled, and is not the first sampled row of its sequence. */
static int is_accepted(const vapp_verify *a, int32_t t)
{
	int32_t before = a->map[t - 1];
	return before >= 0 && a->ids[t] == a->sampled[before];
}

void vapp_op_verify(const void *args, const vapp_call *c)
{
	const vapp_verify *a = args;
	fill(a->map, a->rows, c);
	for (int32_t s = 0; s < c->rows[VAPP_SEQS]; s++) {
		int sampled = 0;
		a->accepted_row[s] = -1, a->accepted[s] = 0;
		for (int32_t t = a->first[s]; t < a->first[s + 1]; t++) {
			int known = a->map[t] == NONE || !sampled || is_accepted(a, t);
			sampled |= a->map[t] != NONE;
			if (known)
				a->accepted_row[s] = t;
			else
				a->map[t] = REJECTED;
		}
	}
	for (int32_t r = 0; r < c->rows[VAPP_PER_SAMPLE]; r++)
		if (a->map[a->rows[r]] != REJECTED)
			a->accepted[a->seq[a->rows[r]]]++;
}

void vapp_op_gather_accepted(const void *args, const vapp_call *c)
{
	const vapp_gather_accepted *a = args;
	int64_t from, to;
	vapp_share(c->rows[VAPP_SEQS], c, &from, &to);
	for (int64_t s = from; s < to; s++)
		if (a->accepted_row[s] >= 0)
			memcpy(a->y + s * a->bytes, a->x + a->accepted_row[s] * a->bytes, (size_t)a->bytes);
		else
			memset(a->y + s * a->bytes, 0, (size_t)a->bytes);
}
