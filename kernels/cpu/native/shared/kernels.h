/* kernels.h: the operands of the ops, except those of Linear, which are in linear.h.
 *
 * All ops have the same signature, so that a thread pool can run a list of them. A call
 * computes part `part` of `parts`. Parts write disjoint memory, and the result does not depend
 * on their number. Structs hold addresses first, then 32-bit words; args.go mirrors them. */
#ifndef VAPP_CPU_KERNELS_H
#define VAPP_CPU_KERNELS_H
#include <math.h>
#include <stdint.h>

#include "linear.h"

/* The remaining formats of kernels.Format. */
enum { VAPP_I32 = 4, VAPP_U32 = 5 };

/* Row symbols: which count of a launch an op's rows have. The symbols from VAPP_CHUNK on count
 * the tokens of one chunk after the other. */
enum { VAPP_PER_TOKEN = 0, VAPP_PER_SAMPLE = 1, VAPP_SEQS = 2, VAPP_CHUNK = 3 };

typedef struct {
	int32_t part, parts;
	const int32_t *rows; /* by symbol */
	int64_t *taken;      /* for each node, VAPP_TAKEN apart, a counter that is 0 when a phase begins; its parts take work from them; or NULL */
	vapp_nodes nodes;
} vapp_call;

typedef void (*vapp_fn)(const void *args, const vapp_call *c);

/* vapp_pages is one page class, and the place of one layer in its pages. */
typedef struct {
	uint8_t *arena;
	const int32_t *table; /* [S, width] page numbers; below 0: no page */
	int64_t page_bytes, slab_bytes;
	int64_t k, v; /* offsets of the layer's K and V in a page; k is the offset of the token plane for token ops */
	int32_t per_slab, width, block, format, kv_heads, head_dim;
	int32_t window;  /* tokens that the class keeps; 0: all */
	int32_t key_dim; /* stored dimensions of a key: the first ones of each half of the head, or those behind its value */
	int32_t chunked; /* the class keeps a chunk of window tokens, and a token sees its chunk */
	int32_t pad;
} vapp_pages;

static inline uint8_t *vapp_page(const vapp_pages *p, int32_t n)
{
	return p->arena + (int64_t)(n / p->per_slab) * p->slab_bytes + (int64_t)(n % p->per_slab) * p->page_bytes;
}

/* vapp_first_block is backend.KVClass.FirstBlock: the first block that a query at pos reads. */
static inline int32_t vapp_first_block(const vapp_pages *p, int32_t pos)
{
	if (p->window == 0 || pos < p->window)
		return 0;
	return (p->chunked ? pos / p->window * p->window : pos - p->window + 1) / p->block;
}

/* out[t] = ids[t], or sampled[-1-ids[t]] of the previous step where ids[t] < 0. */
typedef struct {
	const int32_t *ids, *sampled;
	int32_t *out;
	int32_t samples, vocab; /* bounds of sampled and of an id */
} vapp_tokens;

typedef struct {
	vapp_pages pages;
	const int32_t *ids, *seq, *positions, *first;
} vapp_store_tokens;

/* y[t] = scale · row ids[t] − row0 of the table; zeros outside of the table. row unpacks a row
 * of a packed table; NULL: the table is stored row by row. */
typedef struct {
	const int32_t *ids;
	const void *table;
	float *y;
	void (*row)(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);
	int32_t format, cols, rows;
	float scale;
	int32_t symbol, row0;
} vapp_embed;

/* A row has `segments` segments of cols columns; each is normalized on its own. */
typedef struct {
	const float *x;
	float *residual; /* or NULL */
	const float *w;  /* or NULL: ones */
	float *y;
	const float *gate; /* or NULL */
	const float *bias; /* or NULL; only with plain */
	int32_t symbol, cols, segments, plain;
	float eps, offset, scale; /* scale 0: 1 */
	int32_t pad;
} vapp_norm;

/* vapp_at returns the position of a row. A row is a token; or, with accepted_row, it is a
 * sequence, `by` positions after its accepted row, and −1 for a sequence without one. */
static inline int32_t vapp_at(const int32_t *positions, const int32_t *accepted_row, int32_t by, int64_t row)
{
	if (!accepted_row)
		return positions[row];
	return accepted_row[row] < 0 ? -1 : positions[accepted_row[row]] + by;
}

typedef struct {
	const int32_t *positions, *accepted_row; /* accepted_row: or NULL */
	const int32_t *across, *down;            /* the two positions of a patch, y has 4·half columns; or NULL */
	const int32_t *axes;                     /* [rows, 3] the positions of a token; or NULL */
	const float *freq;
	float *y;
	int32_t half, by;
	float scale;
	int32_t every, offset; /* of the temperature; every 0: none */
	float beta;
	int32_t joined;      /* cosines of both positions of a patch, then sines */
	int32_t sections[3]; /* with axes: frequency i has axis i mod 3 if i < 3·sections[axis], else axis 0 */
} vapp_angles;

/* The norm of heads is a set: heads of Q and K are normalized; those of V; all heads of a row
 * have one mean square; each head has weights of its own; the mean is subtracted first; heads
 * are rotated first. */
enum { VAPP_NORM_QK = 1, VAPP_NORM_V = 2, VAPP_NORM_WHOLE = 4, VAPP_NORM_EACH = 8, VAPP_NORM_PLAIN = 16, VAPP_NORM_AFTER = 32 };
typedef struct {
	const float *qkv, *angles; /* angles: NULL if rotary is 0 */
	float *q;
	void *k, *v;
	float *gate;          /* or NULL: heads have none */
	const float *wq, *wk; /* weights of the norms of heads; NULL: ones */
	const float *query_angles; /* of Q; NULL: angles */
	int32_t heads, kv_heads, head_dim, rotary, format, symbol;
	int32_t norm, shared; /* shared: V is K before its norm and rotation */
	float eps, offset;
	int32_t interleaved, pad; /* 1: pair i is (2i, 2i+1); VAPP_ROPE_GRID: each half of the rotary dimensions by halves */
} vapp_rope;

/* Latent attention: query [rows, heads·(rank+rotary)], of which the last columns of a head are
 * written, k and v. interleaved: pairs are neighbours in q and kv. A unit is a head, or k and v. */
typedef struct {
	const float *q, *kv, *angles, *norm; /* [rows, heads·(nope+rotary)], [rows, rank+rotary], [rows, rotary], [rank] */
	float *query;
	void *k, *v;
	int32_t heads, nope, rank, rotary, format, symbol, interleaved;
	float eps;
} vapp_latent_rope;

/* Each part has work_bytes of work: AttentionWorkspace. A span is the keys that share a
 * softmax, a tile the (token, head) rows that share packed keys and values, a pass those of
 * its rows whose scores are kept at a time. */
enum { VAPP_ATTENTION_SPAN = 256, VAPP_ATTENTION_TILE = 192, VAPP_ATTENTION_PASS = 96, VAPP_ATTENTION_DIM = 512 };
enum { VAPP_ATTENTION_KEYS = 8 }; /* packed keys of a step: attention_pack */
typedef struct {
	vapp_pages pages;
	const float *q;
	const void *k, *v;      /* with latent k has as many columns */
	float *y;
	const int32_t *positions, *first;
	const int32_t *accepted_row;    /* or NULL: rows are tokens; else a row is a sequence, see vapp_at */
	const float *sinks;     /* [heads]: one more term of the softmax; or NULL */
	const int32_t *items;   /* [rows] the position behind the token's item, which it sees to its end; or NULL */
	const float *rebuild;   /* [head_dim]: factor from a value to a key's dimension that is not stored; or NULL */
	uint8_t *work, *shared; /* shared: results of spans until the join; or packed keys and values */
	int64_t work_bytes, shared_bytes;
	int32_t heads;
	float scale, softcap; /* softcap 0: none */
	int32_t window;       /* positions that a token sees, its own included; 0: all */
	int32_t bidirectional;       /* tokens see the tokens after them, and nothing is paged */
	int32_t threads;      /* of the pool; a call may have more or fewer parts */
	int32_t by;
	int32_t fma;          /* decode steps of avx512bf16 use multiply-adds: as VDPBF16PS, faster on Intel's processors */
	int32_t latent;       /* dimensions of a key behind those of its value; 0: keys have as many as values */
	int32_t packed;       /* attention_pack has filled shared: AttentionPacked */
} vapp_attention;

typedef struct {
	vapp_pages pages;
	const void *k, *v;
	const int32_t *seq, *positions, *first, *accepted_row; /* accepted_row: or NULL */
	int32_t by, latent; /* latent: k has the key_dim numbers of each head that are stored */
} vapp_store_kv;

/* The input of a draft head: the successor of each token. map holds a number for each token
 * row. */
typedef struct {
	const int32_t *ids, *first, *rows, *sampled; /* rows: the token row of each sampled row */
	int32_t *map, *out;
} vapp_draft_input;

typedef struct {
	const int32_t *ids, *first, *seq, *rows, *sampled;
	int32_t *map, *accepted_row, *accepted;
} vapp_verify;

typedef struct {
	const uint8_t *x;
	const int32_t *accepted_row;
	uint8_t *y;
	int64_t bytes; /* of a row */
} vapp_gather_accepted;

/* ids[s] = drafts[s·of + n] = the index of the largest logit of row s. */
typedef struct {
	const float *logits;
	int32_t *ids, *drafts;
	int32_t vocab, n, of, pad;
} vapp_propose;

/* vapp_activation is a function of gate and up. VAPP_CLAMPED is that of gpt-oss; limit is
 * infinite if there is none. */
enum { VAPP_SILU, VAPP_GELU_TANH, VAPP_CLAMPED, VAPP_GELU };
enum { VAPP_ROPE_GRID = 2 };
typedef struct {
	int32_t kind, paired;
	float limit, alpha, shift;
} vapp_activation;

typedef struct {
	const float *x;
	float *y;
	int32_t symbol, cols;
	vapp_activation act;
	int32_t pad;
} vapp_glu;

/* Elementwise ops on x, in place: add (other, times *scale or NULL), gate (other; row_factor: one
 * number for each row), activate (act), softcap (cap). */
typedef struct {
	float *x;
	const float *other, *scale;
	int32_t symbol, cols, act;
	float cap;
	int32_t row_factor, pad;
} vapp_elements;

typedef struct {
	const float *a, *b;
	float *y;
	int32_t symbol, a_cols, b_cols, pad;
} vapp_concat;

typedef struct {
	const uint8_t *x;
	const int32_t *first;
	uint8_t *y;
	int64_t bytes; /* of a row */
} vapp_gather_last;

typedef struct {
	const float *logits, *scale, *correction; /* scale, correction [experts] or NULL */
	int32_t *ids;
	float *weights;
	int32_t symbol, experts, top;
	int32_t score, normalize; /* vapp_score */
	int32_t groups, top_groups, group_top; /* groups: 0 to VAPP_GROUPS; group_top: 1 or 2 */
	float factor;
} vapp_route;

enum { VAPP_GROUPS = 32 };

/* What an expert's weight is; the numbers of backend.Score. */
enum { VAPP_SELECTED_SOFTMAX, VAPP_SOFTMAX, VAPP_SIGMOID, VAPP_LOGIT };

/* The state of a convolution is conv_rows rows of cols inputs, in pages.format at pages.k. If
 * conv_rows is kernel − 1, the oldest row comes first. Otherwise position p is in row p mod
 * conv_rows. */
enum { VAPP_CONV_KERNEL = 16, VAPP_CONV_COLS = 64 };
typedef struct {
	vapp_pages pages, marks;
	const float *x, *w; /* w [cols, kernel] */
	float *y;
	const int32_t *positions, *first;
	int32_t cols, kernel, conv_rows, pad;
} vapp_conv;

/* The matrices are at pages.k, in copies copy_bytes apart. */
enum { VAPP_DELTA_COLS = 64, VAPP_DELTA_KEYS = 256 };
typedef struct {
	vapp_pages pages, marks;
	const float *qkv, *ba, *a_log, *dt_bias;
	float *y;
	const int32_t *positions, *first, *rows; /* rows: the rows that are sampled */
	int64_t copy_bytes;
	int32_t key_heads, value_heads, key_dim, value_dim, copies, pad;
} vapp_delta;

typedef struct {
	const uint8_t *x;
	const int32_t *rows;
	uint8_t *y;
	int64_t bytes; /* of a row */
} vapp_gather;

/* vapp_sample_row is backend.SampleRow. */
typedef struct {
	uint64_t seed;
	int32_t position, seq;
	uint32_t flags;
	int32_t num_top, num_bias, top_k;
	float temperature, top_p, min_p, repetition, frequency, presence;
	int32_t prompt_len, history_len, target, pad[3];
} vapp_sample_row;

typedef struct {
	int32_t token;
	float value;
} vapp_bias;

/* Each part has work_bytes of work: SampleWorkspace. */
enum { VAPP_SAMPLE_BINS = 2048 };
typedef struct {
	vapp_pages pages; /* k: the token plane */
	float *logits;
	const vapp_sample_row *rows;
	const uint32_t *grammar, *allowed;
	const vapp_bias *bias;
	int32_t *sampled, *status;
	float *logprob;
	int32_t *rank, *top_ids;
	float *top_probs;
	uint8_t *work;
	int64_t work_bytes;
	int32_t vocab, words, max_bias, max_top;
} vapp_sample;

/* vapp_adapt: low-rank adapters of a product's results. The module m has the columns of y from
 * ends[m-1] to ends[m]. */
typedef struct {
	const float *x;
	float *mid, *y;      /* [rows, modules·rank], [rows, out] */
	const void *a, *b;   /* [num_slots·modules·rank, in], [num_slots·rank, out] of format */
	const int32_t *slots; /* of the first row's token on; below 0: no adapter */
	const int32_t *rows; /* the token of each row; or NULL: rows are tokens */
	int32_t symbol, in, out, rank, modules, format, num_slots;
	int32_t ends[3];
} vapp_adapt;

typedef struct {
	vapp_linear a; /* rows is set at each call */
	const vapp_linear_kernel *kernel;
	int64_t work_stride;
	int32_t symbol, pad;
} vapp_linear_op;

/* A product of each head with a matrix of a stack. Parts take panels of all heads. */
typedef struct {
	vapp_linear a; /* of the first head; rows, shared and work are set at each call */
	const vapp_linear_kernel *kernel;
	uint8_t *work;       /* of all parts, stride bytes each: a.shared_bytes, then a.work_bytes */
	int64_t stride;
	int64_t bytes, x, y; /* from one head to the next: of the stack, and columns of x and y */
	int32_t symbol, heads;
} vapp_head_linear;

/* Ops of vision towers. The item's buffers have a row for each patch. */
typedef struct {
	const float *item;
	const int32_t *item_across, *item_down;
	float *pixels; /* item · scale + shift */
	int32_t *across, *down;
	int32_t cols;
	float scale, shift;
	int32_t pad;
} vapp_patches;

/* Row r of y is the mean of square r of size × size patches, times scale. Patches are in the order
 * of `square`: squares of so many columns and rows, or (0, 1) row by row. */
typedef struct {
	const float *x;
	const int32_t *across;
	float *y;
	int32_t cols, size, square;
	float scale;
} vapp_pool_squares;

typedef struct {
	float *x; /* (x − mean) · scale */
	const float *mean, *scale;
	int32_t symbol, cols;
} vapp_standardize;

/* x is increased by a row of a table [side², cols], stretched over the grid of patches. */
typedef struct {
	float *x;
	const void *table;
	const int32_t *across, *down;
	int32_t format, cols, side, pad;
} vapp_resample;

/* With at, rows of x become rows at[0] and on of encoded; else row rows[t] ≥ 0 of encoded replaces
 * row t of x. */
typedef struct {
	float *x, *encoded;
	const int32_t *rows, *at;
	int32_t symbol, cols;
} vapp_encoded;

/* The operands of the ops that measure limits: sink has 16 floats for each part. */
typedef struct {
	const float *buffer;
	int64_t bytes, rounds;
	float *sink;
} vapp_limit;

/* The ops, with the numbers of the Go constants. */
enum {
	VAPP_OP_TOKENS,
	VAPP_OP_STORE_TOKENS,
	VAPP_OP_EMBED,
	VAPP_OP_NORM,
	VAPP_OP_LINEAR_PREPARE,
	VAPP_OP_LINEAR,
	VAPP_OP_ANGLES,
	VAPP_OP_ROPE,
	VAPP_OP_ATTENTION,
	VAPP_OP_ATTENTION_JOIN,
	VAPP_OP_ATTENTION_PACK,
	VAPP_OP_STORE_KV,
	VAPP_OP_GLU,
	VAPP_OP_GATHER,
	VAPP_OP_SAMPLE,
	VAPP_OP_ADD,
	VAPP_OP_GATE,
	VAPP_OP_ACTIVATE,
	VAPP_OP_SOFTCAP,
	VAPP_OP_CONCAT,
	VAPP_OP_GATHER_LAST,
	VAPP_OP_ROUTE,
	VAPP_OP_CONV,
	VAPP_OP_DELTA,
	VAPP_OP_DRAFT_INPUT,
	VAPP_OP_VERIFY,
	VAPP_OP_GATHER_ACCEPTED,
	VAPP_OP_PROPOSE,
	VAPP_OP_ADAPT_DOWN,
	VAPP_OP_ADAPT_UP,
	VAPP_OP_LATENT_ROPE,
	VAPP_OP_HEAD_LINEAR,
	VAPP_OP_PATCHES,
	VAPP_OP_POOL,
	VAPP_OP_STANDARDIZE,
	VAPP_OP_RESAMPLE,
	VAPP_OP_ENCODED,
	VAPP_OP_READ,      /* from here on: limits */
	VAPP_OP_FMA,
	VAPP_OP_DOT_BF16,
	VAPP_OP_TILES_BF16,
	VAPP_OP_DOT_INT8,
	VAPP_OPS
};

/* vapp_kernel returns the function of an op in a variant, or NULL if this build has none. The
 * caller has checked that the CPU has the variant. */
vapp_fn vapp_kernel(int op, int variant);

/* vapp_element returns the bytes of an element of pages, or of K and V. */
static inline int64_t vapp_element(int32_t format)
{
	return format == VAPP_F32 ? 4 : format == VAPP_F8_E4M3 || format == VAPP_F8_E5M2 ? 1 : 2;
}

/* vapp_dequantize decodes n elements; n is a multiple of the format's block. */
void vapp_dequantize(int32_t format, const void *src, int64_t n, float *dst);

void vapp_round_bf16(const float *src, int64_t n, uint16_t *dst);

/* Conversions of halves, rounded to nearest even. */
float vapp_half_to_float(uint16_t h);
uint16_t vapp_float_to_half(float f);
uint16_t vapp_float_to_bfloat(float f);

static inline float vapp_bfloat_to_float(uint16_t b)
{
	union { uint32_t u; float f; } x = {(uint32_t)b << 16};
	return x.f;
}

/* 8-bit floats: E4M3 has one NaN of each sign; E5M2 is the upper half of a binary16. */
static inline float vapp_e4m3_to_float(uint8_t b)
{
	union { uint32_t u; float f; } x = {(uint32_t)(b & 0x7f) << 20 | (uint32_t)(b & 0x80) << 24};
	return (b & 0x7f) == 0x7f ? NAN : x.f * 0x1p120f;
}

static inline float vapp_e5m2_to_float(uint8_t b) { return vapp_half_to_float((uint16_t)(b << 8)); }

/* vapp_float_to_float8 rounds to nearest even; values beyond ±most become ±most, a NaN stays a
 * NaN. For values below the least normal number, adding unit does the rounding: its last place
 * is the least subnormal. mantissa is the format's number of mantissa bits. */
static inline uint8_t vapp_float_to_float8(float f, int mantissa, uint32_t bias, float most, float least, float unit, uint32_t nan)
{
	union { float f; uint32_t u; } x = {f}, a = {f}, s, one = {unit};
	int drop = 23 - mantissa;
	a.u &= 0x7fffffff;
	uint32_t is_nan = a.u > 0x7f800000;
	a.f = a.f > most ? most : a.f;
	s.f = a.f + unit;
	uint32_t normal = ((a.u + (UINT32_C(1) << (drop - 1)) - 1 + (a.u >> drop & 1)) >> drop) - ((127 - bias) << mantissa);
	uint32_t code = a.f < least ? s.u - one.u : normal;
	return (uint8_t)((is_nan ? nan : code) | (x.u >> 24 & 0x80));
}

static inline uint8_t vapp_float_to_e4m3(float f) { return vapp_float_to_float8(f, 3, 7, 448, 0x1p-6f, 0x1p14f, 0x7f); }
static inline uint8_t vapp_float_to_e5m2(float f) { return vapp_float_to_float8(f, 2, 15, 57344, 0x1p-14f, 0x1p7f, 0x7e); }

/* vapp_random is backend.Random. */
static inline double vapp_random(uint64_t seed, int32_t pos)
{
	uint64_t z = seed + UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)(uint32_t)pos + 1);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

/* vapp_share sets [from, to) to a part's share of n things. */
static inline void vapp_share(int64_t n, const vapp_call *c, int64_t *from, int64_t *to)
{
	*from = n * c->part / c->parts;
	*to = n * (c->part + 1) / c->parts;
}

/* The functions that each instruction set has its own version of. */
#define VAPP_EACH_VARIANT(X) X(norm) X(rope) X(latent_rope) X(glu) X(add) X(gate) X(activate) X(softcap) X(conv) X(delta) \
	X(attention) X(attention_join) X(sample) X(propose) X(adapt_down) X(adapt_up) X(read) X(fma)
#define VAPP_DECLARE(name) \
	void vapp_##name##_generic(const void *, const vapp_call *); \
	void vapp_##name##_avx2(const void *, const vapp_call *); \
	void vapp_##name##_avx512(const void *, const vapp_call *); \
	void vapp_##name##_neon(const void *, const vapp_call *);
VAPP_EACH_VARIANT(VAPP_DECLARE)
#undef VAPP_DECLARE

#endif
