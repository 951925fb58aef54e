//go:build !(linux && amd64)

package isa

import "errors"

// requestTiles returns an error: only Linux on x86-64 is asked.
func requestTiles() error { return errors.ErrUnsupported }
