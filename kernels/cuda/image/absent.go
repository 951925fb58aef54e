//go:build !cuda

package image

// Fatbin returns nil: this binary is built without CUDA.
func Fatbin(string) ([]byte, error) { return nil, nil }
