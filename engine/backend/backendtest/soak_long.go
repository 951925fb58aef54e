//go:build soak

package backendtest

// soak: Suite.Every is not heeded.
const soak = true
