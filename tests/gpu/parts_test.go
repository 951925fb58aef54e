//go:build bundle && !soak

package main

// parts are the parts of TestBundle's first run. make test runs the suite of the backend itself; with the tag soak
// the bundle runs it too.
var parts = []string{"--part", "plan,goldens,small,small-eager,small-plain,small-ops,small-cublaslt,serve,torch"}
