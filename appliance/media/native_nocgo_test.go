//go:build !cgo

package media

const exact = false
