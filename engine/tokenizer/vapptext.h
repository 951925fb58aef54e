#ifndef VAPPTEXT_H
#define VAPPTEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The C ABI of libvapptext.a. Functions that return int32_t return 0 or a
 * VAPPTEXT_* code; on a code, *err is filled and err.text must be freed.
 * Handles are opaque; threads may share them, except matchers. */
enum {
  VAPPTEXT_ARGUMENT = 1,  /* null pointer, text that is not UTF-8, unknown id */
  VAPPTEXT_TOKENIZER = 2, /* tokenizer.json, encode, decode */
  VAPPTEXT_TEMPLATE = 3,  /* syntax or render error, with its line */
  VAPPTEXT_RAISED = 4,    /* raise_exception() in the template */
  VAPPTEXT_FUEL = 5,      /* out of steps */
  VAPPTEXT_OUTPUT = 6,    /* rendered text over the limit */
  VAPPTEXT_CONTEXT = 7,   /* the context is not a JSON object */
  VAPPTEXT_GRAMMAR = 8,
  VAPPTEXT_PANIC = 9,   /* a Rust panic was caught */
  VAPPTEXT_MEMORY = 10, /* a render exceeded its limit of memory */
  VAPPTEXT_TIME = 11,   /* a render exceeded its limit of time */
  VAPPTEXT_LENGTH = 12, /* a text that is too long and cannot be divided */
  VAPPTEXT_UNAVAILABLE = 13, /* the system cannot start a thread now */
  VAPPTEXT_IMAGE = 14,       /* a damaged image, or one with what its decoder lacks */
  VAPPTEXT_TRUNCATED = 15    /* an image that ends too early */
};

typedef struct {
  uint8_t *ptr;
  size_t len;
  size_t cap;
} vapptext_buf;

typedef struct {
  int32_t code;
  uint32_t line; /* of the template, 0: none */
  vapptext_buf text;
} vapptext_error;

void vapptext_free(vapptext_buf b);

/* Tokenizers. The handle is also what daulet/tokenizers' functions take. */
int32_t vapptext_tokenizer_new(const uint8_t *json, size_t n, const void **out, vapptext_error *err);
void vapptext_tokenizer_free(const void *t);
/* The position in a text that is being encoded; all zero at its start. */
typedef struct {
  size_t at, end, stop, scan;
  uint32_t token;
  uint32_t flags; /* bit 4: done */
} vapptext_progress;
/* Encodes the next window of a text, of about window bytes (0: the usual size).
 * special: bit 0 adds the post-processor's tokens, bit 1 encodes special
 * tokens in the text as plain text, bit 2 encodes the whole text at once. out:
 * ids, 32 bits each */
int32_t vapptext_encode(const void *t, const uint8_t *s, size_t n, uint32_t special, size_t window, vapptext_progress *p,
                        vapptext_buf *out, vapptext_error *err);
int32_t vapptext_decode(const void *t, const uint32_t *ids, size_t n, bool skip_special, vapptext_buf *out, vapptext_error *err);
int64_t vapptext_token_id(const void *t, const uint8_t *s, size_t n); /* -1: none */
int32_t vapptext_token_text(const void *t, uint32_t id, vapptext_buf *out, vapptext_error *err);

typedef struct {
  uint32_t join;      /* 1 bytes, 2 byte fallback, 3 whole sequences only */
  uint32_t strip;     /* spaces stripped from the start of a text */
  vapptext_buf flags; /* per id: 1 known, 2 special, 4 fallback byte, 8 added */
  vapptext_buf ends;  /* per id: end of its bytes, 32 bits each */
  vapptext_buf bytes;
} vapptext_vocab;
int32_t vapptext_table(const void *t, vapptext_vocab *out, vapptext_error *err);

/* Limits the stack of threads that compile and render from now on; the default is 256 MiB. */
void vapptext_limit_stack(size_t bytes);

/* Chat templates. */
typedef struct {
  int64_t now;    /* local wall clock, as seconds */
  size_t output;  /* bytes of the rendered text */
  size_t memory;  /* live bytes besides the context */
  uint64_t millis;
  bool own_stack; /* render on a thread with 256 MiB of stack, which no template can exhaust */
} vapptext_budget;
/* fuel: instructions of one render; own_stack: compile on a thread as above */
int32_t vapptext_template_new(const uint8_t *src, size_t n, uint64_t fuel, bool own_stack, void **out, vapptext_error *err);
void vapptext_template_free(void *t);
bool vapptext_template_wants_parts(const void *t);
int32_t vapptext_template_render(const void *t, const uint8_t *ctx_json, size_t n, const vapptext_budget *b, vapptext_buf *out,
                                 vapptext_error *err);

/* Grammars. kind: json_schema, json_object, regex, lark, choice. */
int32_t vapptext_grammars_new(const void *t, uint32_t n_vocab, const uint32_t *eos, size_t n_eos, void **out, vapptext_error *err);
uint32_t vapptext_grammars_vocab(const void *g);
void vapptext_grammars_free(void *g);
int32_t vapptext_matcher_new(const void *g, const uint8_t *kind, size_t kind_len, const uint8_t *src, size_t src_len, void **out,
                             vapptext_error *err);
int32_t vapptext_matcher_clone(void *m, void **out, vapptext_error *err);
void vapptext_matcher_free(void *m);
/* allocated bytes of a matcher; memory shared with a clone counts for the original */
size_t vapptext_matcher_bytes(const void *m);
int32_t vapptext_matcher_mask(void *m, uint32_t *bits, size_t words, vapptext_error *err);
int32_t vapptext_matcher_commit(void *m, const uint32_t *ids, size_t n, vapptext_error *err);
int32_t vapptext_matcher_validate(void *m, const uint32_t *ids, size_t n, size_t *accepted, vapptext_error *err);
/* out: the ids that must come next, 32 bits each */
int32_t vapptext_matcher_forced(void *m, vapptext_buf *out, vapptext_error *err);
int32_t vapptext_matcher_rollback(void *m, size_t n, vapptext_error *err);
/* bit 0: the text may end here, bit 1: stopped */
int32_t vapptext_matcher_state(void *m, uint32_t *flags, vapptext_error *err);

/* Images. out gets 3 · width · height bytes (red, green, blue) for each image; width and height are
 * those of the file's header. scans: the most that a JPEG may have. picks: rising indexes of frames,
 * 0 for the frame of a still image; starts: when each begins, in milliseconds. */
int32_t vapptext_jpeg(const uint8_t *data, size_t n, uint32_t width, uint32_t height, uint32_t scans, uint8_t *out, size_t out_n,
                      vapptext_error *err);
int32_t vapptext_webp(const uint8_t *data, size_t n, uint32_t width, uint32_t height, const uint32_t *picks, size_t picks_n,
                      int32_t *starts, uint8_t *out, size_t out_n, vapptext_error *err);
/* Rows of a PNG's pixels from its data, the zlib stream of all IDAT chunks. A row has row bytes, a pixel
 * pixel bytes: 1, 3 or 4. out gets height · row bytes. The image is not interlaced. */
int32_t vapptext_png(const uint8_t *data, size_t n, uint32_t height, size_t row, uint32_t pixel, uint8_t *out, size_t out_n,
                     vapptext_error *err);

#endif
