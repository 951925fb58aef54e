//go:build !(cgo && linux)

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
)

// best is true: without other backends every way of axes runs on ref.
func best(*testing.T, backend.Opener, backend.Settings) bool { return true }
