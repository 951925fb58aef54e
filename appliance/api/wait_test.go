package api

import (
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// eventually polls got until it returns want. It fails the test after a minute.
func eventually[T comparable](t *testing.T, what string, got func() T, want T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		x := got()
		if x == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %v after a minute, want %v", what, x, want)
		}
	}
}

// blockedModel returns a model that replies "x" after release is called. started is
// closed when the first request reaches the model.
func blockedModel() (m *chattest.Model, started <-chan struct{}, release func()) {
	begun, released := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) })
	m = &chattest.Model{Say: func(engine.Request, int) chattest.Script {
		first()
		<-released
		return chattest.Script{Text: "x"}
	}}
	return m, begun, func() { close(released) }
}
