// Package engine composes its parts into what turns tokens into tokens: Open
// loads a planned model onto a device, Submit hands it prompts, Streams bring
// back tokens, and one loop goroutine does everything in between. Inspect and
// NewAccount say, without a device, what Open will hold.
package engine
