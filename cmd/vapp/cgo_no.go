//go:build !cgo

package main

// withCgo reports whether this binary was built with cgo, which the text library needs to serve.
const withCgo = false
