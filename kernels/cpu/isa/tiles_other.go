//go:build !(linux && amd64)

package isa

import "errors"

// requestTiles is refused: only Linux is asked.
func requestTiles() error { return errors.ErrUnsupported }
