//go:build bundle && soak

package main

// parts are the parts of TestBundle's first run: all.
var parts []string
