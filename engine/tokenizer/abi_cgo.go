//go:build cgo

package tokenizer

/*
#cgo LDFLAGS: -L${SRCDIR}/native/lib -lvapptext -ldl -lm -lpthread
#if __has_include("archive_id.h")
#include "archive_id.h"
#else
#error "the text library is not built: run scripts/build-native.sh (make build does)"
#endif
#include "vapptext.h"

// The go command does not detect changes inside archives. The archive's hash in this object makes
// it rebuild the object, and so the binary, with a new archive.
static const char *archive_id(void) { return VAPPTEXT_ARCHIVE_ID; }
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/daulet/tokenizers"
)

// ArchiveID returns the hash of the native library in this binary.
func ArchiveID() string { return C.GoString(C.archive_id()) }

// HF returns this tokenizer as the type of github.com/daulet/tokenizers, for features that this
// package lacks (offsets, type ids). Both share one native object: do not close the result, and do
// not use it after Close.
func (t *Tokenizer) HF() *tokenizers.Tokenizer {
	p, err := t.obj.hold()
	if err != nil {
		return nil
	}
	defer t.obj.release()
	hf := new(tokenizers.Tokenizer)
	*(*unsafe.Pointer)(unsafe.Pointer(hf)) = p
	return hf
}

// A tokenizers.Tokenizer is one pointer, the handle. This fails to compile if that changes.
var _ [0]struct{} = [unsafe.Sizeof(tokenizers.Tokenizer{}) - unsafe.Sizeof(uintptr(0))]struct{}{}

// kinds maps the native library's error codes.
var kinds = map[C.int32_t]Kind{
	C.VAPPTEXT_ARGUMENT: KindArgument, C.VAPPTEXT_TOKENIZER: KindTokenizer, C.VAPPTEXT_TEMPLATE: KindTemplate,
	C.VAPPTEXT_RAISED: KindRaised, C.VAPPTEXT_FUEL: KindSteps, C.VAPPTEXT_OUTPUT: KindOutput,
	C.VAPPTEXT_CONTEXT: KindVars, C.VAPPTEXT_GRAMMAR: KindGrammar, C.VAPPTEXT_PANIC: KindPanic,
	C.VAPPTEXT_MEMORY: KindMemory, C.VAPPTEXT_TIME: KindTime,
	C.VAPPTEXT_LENGTH: KindLength, C.VAPPTEXT_UNAVAILABLE: KindUnavailable,
}

func check(code C.int32_t, e *C.vapptext_error) error {
	if code == 0 {
		return nil
	}
	return failure(kinds[code], int(e.line), string(takeBuffer(e.text)))
}

// takeBuffer copies a buffer of the native library and frees it.
func takeBuffer(b C.vapptext_buf) []byte {
	defer C.vapptext_free(b)
	if b.len == 0 {
		return nil
	}
	out := make([]byte, int(b.len))
	copy(out, unsafe.Slice((*byte)(b.ptr), int(b.len)))
	return out
}

func takenText(b C.vapptext_buf) string {
	out := takeBuffer(b)
	return unsafe.String(unsafe.SliceData(out), len(out))
}

func takenIDs(b C.vapptext_buf) []int32 {
	defer C.vapptext_free(b)
	n := int(b.len) / 4
	out := make([]int32, n)
	if n > 0 {
		copy(out, unsafe.Slice((*int32)(unsafe.Pointer(b.ptr)), n))
	}
	return out
}

func bytesOf(b []byte) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b))
}

func textOf(s string) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.StringData(s)), C.size_t(len(s))
}

func idsOf(ids []int32) (*C.uint32_t, C.size_t) {
	return (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(ids))), C.size_t(len(ids))
}

func tokenizerNew(json []byte) (p unsafe.Pointer, err error) {
	var e C.vapptext_error
	b, n := bytesOf(json)
	code := C.vapptext_tokenizer_new(b, n, &p, &e)
	return p, check(code, &e)
}

func tokenizerFree(p unsafe.Pointer) { C.vapptext_tokenizer_free(p) }

func tokenizerTable(p unsafe.Pointer) (table, error) {
	var out C.vapptext_vocab
	var e C.vapptext_error
	if err := check(C.vapptext_table(p, &out, &e), &e); err != nil {
		return table{}, err
	}
	t := table{join: uint32(out.join), strip: int(out.strip), flags: takeBuffer(out.flags), bytes: takeBuffer(out.bytes)}
	ends := takenIDs(out.ends)
	t.ends = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(ends))), len(ends))
	return t, nil
}

// progress is the position in a text that is being encoded.
type progress struct{ c C.vapptext_progress }

func (p *progress) done() bool { return p.c.flags&16 != 0 }

// encode appends the ids of a text's next window, of about window bytes; 0 is the default size,
// below 0 the whole text is one window.
func encode(p unsafe.Pointer, text string, o EncodeOptions, window int, at *progress, ids []int32) ([]int32, error) {
	var special C.uint32_t
	if o.AddSpecial {
		special |= 1
	}
	if o.PlainSpecial {
		special |= 2
	}
	if window < 0 {
		special |= 4
		window = 0
	}
	var out C.vapptext_buf
	var e C.vapptext_error
	s, n := textOf(text)
	if err := check(C.vapptext_encode(p, s, n, special, C.size_t(window), &at.c, &out, &e), &e); err != nil {
		return ids, err
	}
	defer C.vapptext_free(out)
	if n := int(out.len) / 4; n > 0 {
		ids = append(ids, unsafe.Slice((*int32)(unsafe.Pointer(out.ptr)), n)...)
	}
	return ids, nil
}

func decode(p unsafe.Pointer, ids []int32, skipSpecial bool) (string, error) {
	var out C.vapptext_buf
	var e C.vapptext_error
	b, n := idsOf(ids)
	if err := check(C.vapptext_decode(p, b, n, C.bool(skipSpecial), &out, &e), &e); err != nil {
		return "", err
	}
	return takenText(out), nil
}

func tokenID(p unsafe.Pointer, token string) (int32, bool) {
	s, n := textOf(token)
	id := C.vapptext_token_id(p, s, n)
	if id < 0 || id > math.MaxInt32 {
		return 0, false
	}
	return int32(id), true
}

func tokenSpelling(p unsafe.Pointer, id int32) string {
	var out C.vapptext_buf
	var e C.vapptext_error
	if id < 0 || check(C.vapptext_token_text(p, C.uint32_t(id), &out, &e), &e) != nil {
		return ""
	}
	return takenText(out)
}
