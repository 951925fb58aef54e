//go:build !unix

package fetch

// nonblock is 0: only Unix has pipes in folders.
const nonblock = 0
