#include <string.h>

#include "../shared/kernels.h"

/* Ops of vision towers, and those that put encoded rows into a prompt. */

/* An item is what each byte stands for, [SHADES], and behind that a byte for each number of its patches. */
#define SHADES 256

void vapp_op_patches(const void *args, const vapp_call *c)
{
	const vapp_patches *a = args;
	const uint8_t *bytes = (const uint8_t *)(a->item + SHADES);
	float shades[SHADES];
	int64_t from, to;
	for (int b = 0; b < SHADES; b++) {
		float x = a->item[b] * a->scale; /* rounded, as in the oracle */
		__asm__("" : "+m"(x));
		shades[b] = x + a->shift;
	}
	vapp_share(c->rows[VAPP_PER_TOKEN], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		a->across[t] = a->item_across[t], a->down[t] = a->item_down[t];
		for (int64_t i = t * a->cols; i < (t + 1) * a->cols; i++)
			a->pixels[i] = shades[bytes[i]];
	}
}

/* grid_size returns one more than the largest of n places. */
static int32_t grid_size(const int32_t *places, int64_t n)
{
	int32_t most = 0;
	for (int64_t t = 0; t < n; t++)
		most = places[t] > most ? places[t] : most;
	return most + 1;
}

/* patch_at returns the patch in a column and row of a grid. */
static int64_t patch_at(int32_t wide, int32_t square, int32_t across, int32_t down)
{
	if (square < 2)
		return (int64_t)down * wide + across;
	return ((int64_t)(down / square) * (wide / square) + across / square) * square * square + down % square * square + across % square;
}

/* Sums are in double, in the order of a square's rows. */
void vapp_op_pool(const void *args, const vapp_call *c)
{
	enum { SOME = 64 };
	const vapp_pool_squares *a = args;
	int64_t from, to;
	int32_t wide = grid_size(a->across, c->rows[VAPP_PER_TOKEN]), n = a->size;
	vapp_share(c->rows[VAPP_PER_SAMPLE], c, &from, &to);
	for (int64_t r = from; r < to; r++)
		for (int32_t col = 0; col < a->cols; col += SOME) {
			double sum[SOME] = {0};
			int32_t m = a->cols - col < SOME ? a->cols - col : SOME, left = (int32_t)(r % (wide / n)) * n, top = (int32_t)(r / (wide / n)) * n;
			for (int32_t i = 0; i < n * n; i++) {
				const float *x = a->x + patch_at(wide, a->square, left + i % n, top + i / n) * a->cols + col;
				for (int32_t k = 0; k < m; k++)
					sum[k] += (double)x[k];
			}
			for (int32_t k = 0; k < m; k++)
				a->y[r * a->cols + col + k] = (float)(sum[k] / (n * n) * (double)a->scale);
		}
}

void vapp_op_standardize(const void *args, const vapp_call *c)
{
	const vapp_standardize *a = args;
	int64_t from, to;
	vapp_share(c->rows[a->symbol], c, &from, &to);
	for (int64_t t = from; t < to; t++)
		for (int32_t i = 0; i < a->cols; i++)
			a->x[t * a->cols + i] = (a->x[t * a->cols + i] - a->mean[i]) * a->scale[i];
}

/* between is a place between two rows of a table: both, and the weight of the second. */
typedef struct {
	int32_t lo, hi;
	double share;
} between;

static between stretch(int32_t at, int32_t n, int32_t side)
{
	if (n < 2)
		return (between){0, side > 1, 0};
	int64_t far = (int64_t)at * (side - 1);
	int32_t lo = (int32_t)(far / (n - 1));
	return (between){lo, lo + 1 < side ? lo + 1 : side - 1, (double)(far % (n - 1)) / (n - 1)};
}

void vapp_op_resample(const void *args, const vapp_call *c)
{
	enum { SOME = 64 };
	const vapp_resample *a = args;
	int64_t from, to, e = vapp_element(a->format), n = c->rows[VAPP_PER_TOKEN];
	int32_t wide = grid_size(a->across, n), high = grid_size(a->down, n);
	vapp_share(n, c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		between x = stretch(a->across[t], wide, a->side), y = stretch(a->down[t], high, a->side);
		const int64_t at[4] = {(int64_t)y.lo * a->side + x.lo, (int64_t)y.lo * a->side + x.hi, (int64_t)y.hi * a->side + x.lo, (int64_t)y.hi * a->side + x.hi};
		const double share[4] = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share, y.share * (1 - x.share), y.share * x.share};
		for (int32_t col = 0; col < a->cols; col += SOME) {
			int32_t m = a->cols - col < SOME ? a->cols - col : SOME;
			double sum[SOME] = {0};
			float row[SOME], *to_row = a->x + t * a->cols + col;
			for (int j = 0; j < 4; j++) {
				vapp_dequantize(a->format, (const uint8_t *)a->table + (at[j] * a->cols + col) * e, m, row);
				for (int32_t k = 0; k < m; k++)
					sum[k] += share[j] * (double)row[k];
			}
			for (int32_t k = 0; k < m; k++)
				to_row[k] = (float)((double)to_row[k] + sum[k]);
		}
	}
}

void vapp_op_encoded(const void *args, const vapp_call *c)
{
	const vapp_encoded *a = args;
	int64_t from, to;
	size_t bytes = (size_t)a->cols * 4;
	vapp_share(c->rows[a->symbol], c, &from, &to);
	for (int64_t t = from; t < to; t++) {
		float *x = a->x + t * a->cols;
		if (a->at)
			memcpy(a->encoded + (a->at[0] + t) * a->cols, x, bytes);
		else if (a->rows[t] >= 0)
			memcpy(x, a->encoded + (int64_t)a->rows[t] * a->cols, bytes);
	}
}
