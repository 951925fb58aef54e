// Package tokenizer converts between text and tokens: encoding, decoding (also streamed), rendering
// of chat templates, and grammars over token bytes. It must not know models, requests or the
// engine. Start reading at Tokenizer in tokenizer.go, and at native/src/abi.rs for the Rust side.
//
// All work is done in one Rust archive, native/lib/libvapptext.a, which scripts/build-native.sh
// builds. It also holds the C ABI of github.com/daulet/tokenizers. Text crosses the C ABI with its
// length, never as a C string, so NUL bytes are allowed. A Rust panic is returned as an error. In a
// binary built without cgo the constructors return an error.
package tokenizer
