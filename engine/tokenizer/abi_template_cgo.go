//go:build cgo

package tokenizer

// #include "vapptext.h"
import "C"

import "unsafe"

func templateNew(source string, l Limits) (p unsafe.Pointer, err error) {
	var e C.vapptext_error
	s, n := textOf(source)
	code := C.vapptext_template_new(s, n, C.uint64_t(l.Steps), C.bool(!l.smallStack), &p, &e)
	return p, asTemplate(check(code, &e))
}

func templateFree(p unsafe.Pointer) { C.vapptext_template_free(p) }

func templateWantsParts(p unsafe.Pointer) bool { return bool(C.vapptext_template_wants_parts(p)) }

func templateRender(p unsafe.Pointer, vars []byte, now int64, l Limits) (string, error) {
	budget := C.vapptext_budget{
		now: C.int64_t(now), output: C.size_t(l.OutputBytes), memory: C.size_t(l.MemoryBytes),
		millis: C.uint64_t(l.Time.Milliseconds()), own_stack: C.bool(!l.smallStack),
	}
	var out C.vapptext_buf
	var e C.vapptext_error
	b, n := bytesOf(vars)
	if err := check(C.vapptext_template_render(p, b, n, &budget, &out, &e), &e); err != nil {
		return "", asTemplate(err)
	}
	return takenText(out), nil
}

// limitStack limits the stack of the library's own threads in this process.
func limitStack(bytes int64) { C.vapptext_limit_stack(C.size_t(bytes)) }

func grammarsNew(tok unsafe.Pointer, o GrammarOptions) (p unsafe.Pointer, err error) {
	var e C.vapptext_error
	eos, n := idsOf(o.EOS)
	code := C.vapptext_grammars_new(tok, C.uint32_t(o.VocabSize), eos, n, &p, &e)
	return p, check(code, &e)
}

func grammarsFree(p unsafe.Pointer) { C.vapptext_grammars_free(p) }

func grammarsVocab(p unsafe.Pointer) int { return int(C.vapptext_grammars_vocab(p)) }

func matcherNew(g unsafe.Pointer, s GrammarSpec) (p unsafe.Pointer, err error) {
	var e C.vapptext_error
	kind, kn := textOf(s.Kind)
	src, sn := textOf(s.Source)
	code := C.vapptext_matcher_new(g, kind, kn, src, sn, &p, &e)
	return p, check(code, &e)
}

func matcherClone(m unsafe.Pointer) (p unsafe.Pointer, err error) {
	var e C.vapptext_error
	code := C.vapptext_matcher_clone(m, &p, &e)
	return p, check(code, &e)
}

func matcherFree(p unsafe.Pointer) { C.vapptext_matcher_free(p) }

func matcherBytes(p unsafe.Pointer) int64 { return int64(C.vapptext_matcher_bytes(p)) }

func matcherMask(m unsafe.Pointer, mask []uint32) error {
	var e C.vapptext_error
	code := C.vapptext_matcher_mask(m, (*C.uint32_t)(unsafe.SliceData(mask)), C.size_t(len(mask)), &e)
	return check(code, &e)
}

func matcherAdvance(m unsafe.Pointer, ids []int32) error {
	var e C.vapptext_error
	b, n := idsOf(ids)
	return check(C.vapptext_matcher_commit(m, b, n, &e), &e)
}

func matcherAccepts(m unsafe.Pointer, ids []int32) (int, error) {
	var e C.vapptext_error
	var accepted C.size_t
	b, n := idsOf(ids)
	code := C.vapptext_matcher_validate(m, b, n, &accepted, &e)
	return int(accepted), check(code, &e)
}

func matcherForced(m unsafe.Pointer) ([]int32, error) {
	var out C.vapptext_buf
	var e C.vapptext_error
	if err := check(C.vapptext_matcher_forced(m, &out, &e), &e); err != nil {
		return nil, err
	}
	return takenIDs(out), nil
}

func matcherRollback(m unsafe.Pointer, n int) error {
	var e C.vapptext_error
	return check(C.vapptext_matcher_rollback(m, C.size_t(n), &e), &e)
}

func matcherState(m unsafe.Pointer) (accepting, stopped bool, err error) {
	var e C.vapptext_error
	var flags C.uint32_t
	code := C.vapptext_matcher_state(m, &flags, &e)
	return flags&1 != 0, flags&2 != 0, check(code, &e)
}
