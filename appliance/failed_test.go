package appliance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// frail is ref with a device that fails from a moment on.
type frail struct {
	ref.Opener
	failed *atomic.Bool
}

func (f frail) Open(facts backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	d, err := f.Opener.Open(facts, s, r)
	return frailDevice{d, f.failed}, err
}

type frailDevice struct {
	backend.Device
	failed *atomic.Bool
}

var errAstray = errors.New("a kernel went astray")

func (d frailDevice) Launch(e backend.Executable, b backend.Binding) error {
	if d.failed.Load() {
		return errAstray
	}
	time.Sleep(5 * time.Millisecond) // a reply takes a second
	return d.Device.Launch(e, b)
}

// TestDeviceFails: when the device fails, requests end with 500 or the record of an error, and
// Run with the reason, whether the server takes requests or drains.
func TestDeviceFails(t *testing.T) {
	for _, draining := range []bool{false, true} {
		t.Run(fmt.Sprint("draining ", draining), func(t *testing.T) {
			toy := filepath.Join(t.TempDir(), "toy")
			if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
				t.Fatal(err)
			}
			failed := &atomic.Bool{}
			s := serveOn(t, frail{failed: failed}, toy, "")
			whole := make(chan int)
			go func() {
				r, err := s.ask(context.Background(), s.modelName(), 200, false)
				if err != nil {
					t.Error(err)
					close(whole)
					return
				}
				r.Body.Close()
				whole <- r.StatusCode
			}()
			s.eventually(t, "it runs", func() bool { return s.engine.Stats().Running > 0 })
			begun, streamed := make(chan bool), make(chan string)
			go func() {
				finish, _ := s.stream(200, func() { close(begun) })
				streamed <- finish
			}()
			<-begun
			if draining {
				s.drain()
				s.eventually(t, "drain", func() bool { return s.phase.get() == Draining })
			}
			failed.Store(true)
			if status := <-whole; status != http.StatusInternalServerError {
				t.Errorf("status %d", status)
			}
			if finish := <-streamed; finish == "length" {
				t.Error("the stream ended well")
			}
			err := <-s.ended
			if !errors.Is(err, engine.ErrDead) || !errors.Is(err, errAstray) {
				t.Errorf("Run: %v", err)
			}
			s.ended <- nil
		})
	}
}
