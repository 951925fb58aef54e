package tokenizer

import (
	"runtime"
	"sync"
	"unsafe"
)

// lease owns one native object. Calls hold it, close waits for them, and the garbage collector
// frees an object that was not closed.
type lease struct {
	mu   sync.RWMutex
	p    unsafe.Pointer
	what string
	free func(unsafe.Pointer)
	gone runtime.Cleanup
}

func newLease(p unsafe.Pointer, what string, free func(unsafe.Pointer)) *lease {
	l := &lease{p: p, what: what, free: free}
	l.gone = runtime.AddCleanup(l, free, p)
	return l
}

// hold returns the object and keeps it alive until release.
func (l *lease) hold() (unsafe.Pointer, error) {
	l.mu.RLock()
	if l.p == nil {
		l.mu.RUnlock()
		return nil, errClosed(l.what)
	}
	return l.p, nil
}

func (l *lease) release() { l.mu.RUnlock() }

func (l *lease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.p == nil {
		return
	}
	l.gone.Stop()
	l.free(l.p)
	l.p = nil
}
