//go:build !soak

package dialect

// rounds is the number of messages per combination of parsers; with the tag soak there are more.
const rounds = 250
