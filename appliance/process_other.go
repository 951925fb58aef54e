//go:build !linux

package appliance

// processUse reports nothing: only Linux says it without other libraries.
func processUse() (u use, ok bool) { return use{}, false }
