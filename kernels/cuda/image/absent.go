//go:build !cuda

package image

// Fatbin is nil: this binary is built without CUDA.
func Fatbin(string) ([]byte, error) { return nil, nil }
