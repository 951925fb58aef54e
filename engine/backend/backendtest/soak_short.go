//go:build !soak

package backendtest

// soak: Suite.Every is not heeded, with the tag soak.
const soak = false
