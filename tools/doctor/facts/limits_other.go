//go:build !unix

package facts

// freeBytes is unknown on this system.
func freeBytes(string) int64 { return -1 }

func mayWrite(string) bool { return true }

func (l *Limits) read() {}
