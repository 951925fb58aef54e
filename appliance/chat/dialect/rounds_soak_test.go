//go:build soak

package dialect

// rounds is the number of messages per combination of parsers.
const rounds = 2000
