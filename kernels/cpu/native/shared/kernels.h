/* kernels.h: the ops of a program but Linear, which is in linear.h.
 *
 * Every op has the same signature, so that a pool runs a list of them without
 * knowing what they do. A call computes part `part` of `parts`; parts write
 * disjoint memory and a result never depends on how many there are. Structs
 * hold addresses first, then 32-bit words; args.go mirrors them. */
#ifndef VAPP_CPU_KERNELS_H
#define VAPP_CPU_KERNELS_H
#include <math.h>
#include <stdint.h>

#include "linear.h"

/* The remaining formats of kernels.Format. */
enum { VAPP_I32 = 4, VAPP_U32 = 5 };

/* Row symbols: which count of a launch an op's rows are. Those from VAPP_CHUNK on are of
 * the tokens' chunks, one after the other. */
enum { VAPP_PER_TOKEN = 0, VAPP_PER_SAMPLE = 1, VAPP_SEQS = 2, VAPP_CHUNK = 3 };

typedef struct {
	int32_t part, parts;
	const int32_t *rows; /* by symbol */
	int64_t *taken;      /* 0 when a phase begins, for its parts to count what they take; or NULL */
} vapp_call;

typedef void (*vapp_fn)(const void *args, const vapp_call *c);

/* vapp_pages is one class of page, and one layer's place in it. */
typedef struct {
	uint8_t *arena;
	const int32_t *table; /* [S, width] page numbers, below 0: none */
	int64_t page_bytes, slab_bytes;
	int64_t k, v; /* where the layer's K and V begin in a page; k is the token plane's place for token ops */
	int32_t per_slab, width, block, format, kv_heads, head_dim;
	int32_t window;  /* tokens that the class keeps; 0: all */
	int32_t key_dim; /* numbers of a head's key that are stored: of each half of the head the first */
} vapp_pages;

static inline uint8_t *vapp_page(const vapp_pages *p, int32_t n)
{
	return p->arena + (int64_t)(n / p->per_slab) * p->slab_bytes + (int64_t)(n % p->per_slab) * p->page_bytes;
}

/* vapp_first_block is backend.KVClass.Kept: the first block that a query at pos reads. */
static inline int32_t vapp_first_block(const vapp_pages *p, int32_t pos)
{
	return p->window == 0 || pos < p->window ? 0 : (pos - p->window + 1) / p->block;
}

/* out[t] = id[t], or sampled[-1-id[t]] of the other set where id[t] < 0. */
typedef struct {
	const int32_t *ids, *sampled;
	int32_t *out;
	int32_t samples, vocab; /* bounds of sampled and of an id */
} vapp_tokens;

typedef struct {
	vapp_pages pages;
	const int32_t *ids, *seq, *positions, *first;
} vapp_store_tokens;

/* y[t] = scale · row ids[t] − row0, zeros outside of the table; row is NULL for a table
 * stored row by row. */
typedef struct {
	const int32_t *ids;
	const void *table;
	float *y;
	void (*row)(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);
	int32_t format, cols, rows;
	float scale;
	int32_t symbol, row0;
} vapp_embed;

/* Segments of cols columns are rows: each counts segments times. */
typedef struct {
	const float *x;
	float *residual; /* or NULL */
	const float *w;  /* or NULL: ones */
	float *y;
	const float *gate; /* or NULL */
	const float *bias; /* or NULL; of a plain norm */
	int32_t symbol, cols, segments, plain;
	float eps, offset, scale; /* scale 0: 1 */
	int32_t pad;
} vapp_norm;

/* vapp_at is the position of a row: of a token, or where kept is given by more than that
 * of a sequence's kept token; −1 of a sequence without one. */
static inline int32_t vapp_at(const int32_t *positions, const int32_t *accepted_row, int32_t by, int64_t row)
{
	if (!accepted_row)
		return positions[row];
	return accepted_row[row] < 0 ? -1 : positions[accepted_row[row]] + by;
}

typedef struct {
	const int32_t *positions, *accepted_row; /* kept: or NULL */
	const float *freq;
	float *y;
	int32_t half, by;
	float scale;
	int32_t pad;
} vapp_angles;

typedef struct {
	const float *qkv, *angles;
	float *q;
	void *k, *v;
	float *gate;          /* or NULL: heads have none */
	const float *wq, *wk; /* norms of heads; NULL: not normalised */
	int32_t heads, kv_heads, head_dim, rotary, format, symbol;
	int32_t norm_v, shared; /* V is normalised; V is K as it comes */
	float eps, offset;
} vapp_rope;

/* work is one room of work_bytes for each part: AttentionWorkspace. A span is the
 * keys that share a softmax, a tile the (token, head) rows that share loads. */
enum { VAPP_ATTENTION_SPAN = 256, VAPP_ATTENTION_TILE = 96, VAPP_ATTENTION_DIM = 512 };
typedef struct {
	vapp_pages pages;
	const float *q;
	const void *k, *v;
	float *y;
	const int32_t *positions, *first;
	const int32_t *accepted_row;    /* or NULL: rows are sequences, by ahead of it */
	const float *sinks;     /* [heads]: one term more in the softmax; or NULL */
	const float *rebuild;   /* [head_dim]: what keys that are not stored are of values; or NULL */
	uint8_t *work, *shared; /* shared: results of spans that wait for the join */
	int64_t work_bytes, shared_bytes;
	int32_t heads;
	float scale, softcap; /* softcap 0: none */
	int32_t window;       /* positions that a token sees, its own included; 0: all */
	int32_t bidirectional;       /* tokens see those after them, and nothing is paged */
	int32_t threads;      /* of the pool, whatever a call's parts are */
	int32_t by, pad;
} vapp_attention;

typedef struct {
	vapp_pages pages;
	const void *k, *v;
	const int32_t *seq, *positions, *first, *accepted_row; /* kept: or NULL */
	int32_t by, pad;
} vapp_store_kv;

/* What is known of proposals: map has room for a number for each token row. */
typedef struct {
	const int32_t *ids, *first, *rows, *sampled; /* rows: which token row a sampled one is */
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

/* ids[s] = drafts[s·of + n] = the largest of the row of logits. */
typedef struct {
	const float *logits;
	int32_t *ids, *drafts;
	int32_t vocab, n, of, pad;
} vapp_propose;

/* vapp_activation is a function of gate and up. VAPP_CLAMPED is gpt-oss's: its limit is
 * infinite where there is none. */
enum { VAPP_SILU, VAPP_GELU_TANH, VAPP_CLAMPED };
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

/* Ops on every number of x, in place: add (other, times *scale or NULL), gate (other),
 * activate (act), softcap (cap). */
typedef struct {
	float *x;
	const float *other, *scale;
	int32_t symbol, cols, act;
	float cap;
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
	const float *logits, *scale; /* scale [experts] or NULL */
	int32_t *ids;
	float *weights;
	int32_t symbol, experts, top, pad;
} vapp_route;

/* The state of a convolution: conv_rows rows of cols inputs in pages.format at pages.k.
 * Kernel − 1 rows lie oldest first; where there are more, that of position p is p mod
 * conv_rows. */
enum { VAPP_CONV_KERNEL = 16, VAPP_CONV_COLS = 64 };
typedef struct {
	vapp_pages pages, marks;
	const float *x, *w; /* w [cols, kernel] */
	float *y;
	const int32_t *positions, *first;
	int32_t cols, kernel, conv_rows, pad;
} vapp_conv;

/* The matrices lie at pages.k, in copies copy_bytes apart. */
enum { VAPP_DELTA_COLS = 64, VAPP_DELTA_KEYS = 256 };
typedef struct {
	vapp_pages pages, marks;
	const float *qkv, *ba, *a_log, *dt_bias;
	float *y;
	const int32_t *positions, *first, *rows; /* rows: those that sample */
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

/* work is one room of work_bytes for each part: SampleWorkspace. */
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

typedef struct {
	vapp_linear a; /* rows is set at each call */
	const vapp_linear_kernel *kernel;
	int64_t work_stride;
	int32_t symbol, pad;
} vapp_linear_op;

/* The measurements of limits: sink is 16 floats for each part. */
typedef struct {
	const float *buffer;
	int64_t bytes, rounds;
	float *sink;
} vapp_limit;

/* The ops, numbered as the Go constants. */
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
	VAPP_OP_READ,      /* limits */
	VAPP_OP_FMA,
	VAPP_OP_DOT_BF16,
	VAPP_OP_TILES_BF16,
	VAPP_OP_DOT_INT8,
	VAPP_OPS
};

/* vapp_kernel returns the function of an op in a variant, or NULL where this
 * build has none. The caller has checked that the CPU has the variant. */
vapp_fn vapp_kernel(int op, int variant);

/* vapp_element is the bytes of a number of pages, or of K and V. */
static inline int64_t vapp_element(int32_t format)
{
	return format == VAPP_F32 ? 4 : format == VAPP_F8_E4M3 || format == VAPP_F8_E5M2 ? 1 : 2;
}

/* vapp_dequantize decodes n elements, n a multiple of the block. */
void vapp_dequantize(int32_t format, const void *src, int64_t n, float *dst);

void vapp_round_bf16(const float *src, int64_t n, uint16_t *dst);

/* Halves, rounded to nearest even. */
float vapp_half_to_float(uint16_t h);
uint16_t vapp_float_to_half(float f);
uint16_t vapp_float_to_bfloat(float f);

static inline float vapp_bfloat_to_float(uint16_t b)
{
	union { uint32_t u; float f; } x = {(uint32_t)b << 16};
	return x.f;
}

/* 8-bit floats: one NaN of each sign in E4M3; E5M2 is the upper half of a binary16. */
static inline float vapp_e4m3_to_float(uint8_t b)
{
	union { uint32_t u; float f; } x = {(uint32_t)(b & 0x7f) << 20 | (uint32_t)(b & 0x80) << 24};
	return (b & 0x7f) == 0x7f ? NAN : x.f * 0x1p120f;
}

static inline float vapp_e5m2_to_float(uint8_t b) { return vapp_half_to_float((uint16_t)(b << 8)); }

/* vapp_float_to_float8 rounds to nearest even, what lies beyond ±most to ±most; NaN stays
 * one. Below the least normal number the sum with unit, whose last place is the least
 * number, does the rounding. mantissa is the format's bits of it. */
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

/* vapp_share gives part i of n things to a part: [from, to). */
static inline void vapp_share(int64_t n, const vapp_call *c, int64_t *from, int64_t *to)
{
	*from = n * c->part / c->parts;
	*to = n * (c->part + 1) / c->parts;
}

/* The functions that each instruction set has its own of. */
#define VAPP_EACH_VARIANT(X) X(norm) X(rope) X(glu) X(add) X(gate) X(activate) X(softcap) X(conv) X(delta) \
	X(attention) X(attention_join) X(sample) X(propose) X(read) X(fma)
#define VAPP_DECLARE(name) \
	void vapp_##name##_generic(const void *, const vapp_call *); \
	void vapp_##name##_avx2(const void *, const vapp_call *); \
	void vapp_##name##_avx512(const void *, const vapp_call *);
VAPP_EACH_VARIANT(VAPP_DECLARE)
#undef VAPP_DECLARE

#endif
