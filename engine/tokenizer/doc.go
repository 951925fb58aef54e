// Package tokenizer is text ⇄ tokens, streaming-safe: encoding, decoding, the
// rendering of chat templates, and grammars over token bytes.
//
// All of it happens in one Rust archive, native/lib/libvapptext.a, which
// scripts/build-native.sh builds and which also holds the C ABI of
// github.com/daulet/tokenizers. Text crosses the border by length, never as a C
// string, so a NUL byte is text like any other. A panic in Rust comes back as an
// error. A binary built without cgo has none of this: the constructors say so.
package tokenizer
