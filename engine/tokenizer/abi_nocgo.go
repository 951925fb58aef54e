//go:build !cgo

package tokenizer

import "unsafe"

// Without cgo there is no native library. The constructors fail, so the other functions are never
// called with an object.

// ArchiveID returns the hash of the native library in this binary: "", there is none.
func ArchiveID() string { return "" }

type progress struct{}

func (*progress) done() bool { return true }

func noCgo() error {
	return &Error{KindNoCgo, "this binary was built without cgo and has no tokenizer, templates or grammars; build it with CGO_ENABLED=1"}
}

func tokenizerNew([]byte) (unsafe.Pointer, error)          { return nil, noCgo() }
func limitStack(int64)                                     {}
func tokenizerFree(unsafe.Pointer)                         {}
func tokenizerTable(unsafe.Pointer) (table, error)         { return table{}, noCgo() }
func tokenID(unsafe.Pointer, string) (int32, bool)         { return 0, false }
func tokenSpelling(unsafe.Pointer, int32) string           { return "" }
func decode(unsafe.Pointer, []int32, bool) (string, error) { return "", noCgo() }
func templateNew(string, Limits) (unsafe.Pointer, error)   { return nil, noCgo() }
func templateFree(unsafe.Pointer)                          {}
func templateWantsParts(unsafe.Pointer) bool               { return false }
func grammarsFree(unsafe.Pointer)                          {}
func grammarsVocab(unsafe.Pointer) int                     { return 0 }
func matcherClone(unsafe.Pointer) (unsafe.Pointer, error)  { return nil, noCgo() }
func matcherFree(unsafe.Pointer)                           {}
func matcherBytes(unsafe.Pointer) int64                    { return 0 }
func matcherMask(unsafe.Pointer, []uint32) error           { return noCgo() }
func matcherAdvance(unsafe.Pointer, []int32) error         { return noCgo() }
func matcherAccepts(unsafe.Pointer, []int32) (int, error)  { return 0, noCgo() }
func matcherForced(unsafe.Pointer) ([]int32, error)        { return nil, noCgo() }
func matcherRollback(unsafe.Pointer, int) error            { return noCgo() }
func matcherState(unsafe.Pointer) (bool, bool, error)      { return false, false, noCgo() }
func encode(unsafe.Pointer, string, EncodeOptions, int, *progress, []int32) ([]int32, error) {
	return nil, noCgo()
}
func templateRender(unsafe.Pointer, []byte, int64, Limits) (string, error) {
	return "", noCgo()
}
func grammarsNew(unsafe.Pointer, GrammarOptions) (unsafe.Pointer, error) {
	return nil, noCgo()
}
func matcherNew(unsafe.Pointer, GrammarSpec) (unsafe.Pointer, error) {
	return nil, noCgo()
}
