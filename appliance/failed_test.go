package appliance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// frail is backend ref with a device that fails after failed is set.
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

var errKernel = errors.New("a kernel failed")

func (d frailDevice) Launch(e backend.Executable, b backend.Binding) error {
	if d.failed.Load() {
		return errKernel
	}
	time.Sleep(50 * time.Millisecond) // a reply takes ten seconds, and the device fails before
	return d.Device.Launch(e, b)
}

// TestDeviceFails checks that after a failure of the device requests end with 500 or an
// error record, and Run with the reason, while the server serves and while it drains.
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
			s.eventually(t, "it runs", func() bool { return s.engine().Stats().Running > 0 })
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
			if !errors.Is(err, engine.ErrDead) || !errors.Is(err, errKernel) {
				t.Errorf("Run: %v", err)
			}
			s.ended <- nil
		})
	}
}

// TestFailedUntilAnswered checks that after a failure of the device /readyz answers 503
// with the reason and new requests are refused, until the open requests have their 500 and
// Run returns.
func TestFailedUntilAnswered(t *testing.T) {
	was := failGrace
	failGrace = 2 * time.Minute
	t.Cleanup(func() { failGrace = was })
	toy := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	failed := &atomic.Bool{}
	s := serveOn(t, frail{failed: failed}, toy, "")
	// A request whose body is incomplete.
	open, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	body := fmt.Sprintf(`{"model":%q,"prompt":"hello","max_tokens":3}`, s.modelName())
	fmt.Fprintf(open, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	replies := bufio.NewReader(open)
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if got, err := replies.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	failed.Store(true)
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} { // of the running request, and of a later one
		r, err := s.ask(context.Background(), s.modelName(), 5, false)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != status {
			t.Errorf("status %d, want %d", r.StatusCode, status)
		}
	}
	<-s.engine().Done()
	for range 3 {
		if status, text := s.get(t, "/readyz"); status != http.StatusServiceUnavailable || text != `{"phase":"failed","why":"the engine has failed: a kernel failed"}` {
			t.Errorf("%d %s", status, text)
		}
	}
	select {
	case err := <-s.ended:
		t.Fatalf("Run returned %v before the open request had its reply", err)
	default:
	}
	if _, err := io.WriteString(open, body); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(replies, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusInternalServerError || err != nil || !strings.Contains(string(text), "The engine has failed.") {
		t.Errorf("%s %s %v", r.Status, text, err)
	}
	if err := <-s.ended; !errors.Is(err, engine.ErrDead) || !errors.Is(err, errKernel) {
		t.Errorf("Run: %v", err)
	}
	s.ended <- nil
}
