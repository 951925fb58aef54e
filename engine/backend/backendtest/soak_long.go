//go:build soak

package backendtest

// soak is on: Suite.Every is ignored, and all cases run.
const soak = true
