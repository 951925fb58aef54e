//go:build !cuda

package image

// Code returns nil: this binary is built without CUDA.
func Code(stem, name string) ([]byte, error) { return nil, nil }
