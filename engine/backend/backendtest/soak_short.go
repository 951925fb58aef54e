//go:build !soak

package backendtest

// soak is off: Suite.Every applies.
const soak = false
