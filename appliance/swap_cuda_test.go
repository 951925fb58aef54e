//go:build linux && cgo && cuda

package appliance

import (
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda/cudatest"
)

// onCUDA is backend cuda, whose next device fails in a phase.
type onCUDA struct {
	cuda.Opener
	next *atomic.Pointer[string] // nil: none fails
}

const failCapture = "capture"

func (o onCUDA) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	phase := ""
	if p := o.next.Swap(nil); p != nil {
		phase = *p
	}
	if phase == failOpen {
		return nil, errFault
	}
	d, err := o.Opener.Open(f, s, r)
	if err != nil {
		return nil, err
	}
	return cudaDevice{d, d.(backend.Sharer), d.(backend.Capturer), d.(backend.MemoryReporter), phase}, nil
}

type cudaDevice struct {
	backend.Device
	backend.Sharer
	backend.Capturer
	backend.MemoryReporter
	phase string
}

func (d cudaDevice) Capture(e backend.Executable, set int, g backend.Graph) error {
	if d.phase == failCapture {
		return errFault
	}
	return d.Capturer.Capture(e, set, g)
}

// startCUDA starts a server on the emulated driver, or on a GPU with VAPP_GPU.
func startCUDA(t *testing.T, on onCUDA, more string, change ...func(*Appliance)) *server {
	t.Helper()
	cudatest.Use(t)
	if os.Getenv("VAPP_GPU") == "" {
		if err := driver.Emulate("reset,sms=8,order=lazy"); err != nil {
			t.Fatal(err)
		}
	}
	return serveProfile(t, on, toyModel(t), cudaProfile, more, change...)
}

// cudaProfile replaces backend ref by cuda, with graphs.
func cudaProfile(text string) string {
	return strings.Replace(text, `backend: "ref"`, `backend: "cuda", cudagraph: captureSizes: [1, 2]`, 1)
}

// TestSwapCUDA replaces an engine whose steps run by graphs, in every way: with a fault in the capture of the new engine's
// graphs, after which the old one serves as before, and without.
func TestSwapCUDA(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			on := onCUDA{next: &atomic.Pointer[string]{}}
			s := startCUDA(t, on, `reload: structural: "swap"`, byWay(way))
			want, err := s.reply("hello there", 10)
			if err != nil {
				t.Fatal(err)
			}
			fault := failCapture
			on.next.Store(&fault)
			s.withSequences(t, 8, "")
			if r := s.latest(t, Rejected); !strings.Contains(r.Error, "capturing") || !strings.Contains(r.Error, errFault.Error()) {
				t.Errorf("%+v", r)
			}
			if got, err := s.reply("hello there", 10); err != nil || got != want {
				t.Errorf("after the fault: %q, %v; want %q", got, err, want)
			}
			s.withSequences(t, 12, "")
			s.waitApplied(t, 1)
			if got, err := s.reply("hello there", 10); err != nil || got != want {
				t.Errorf("after the swap: %q, %v; want %q", got, err, want)
			}
			s.eventually(t, "the end of the swap", func() bool { return !s.swaps.running() })
		})
	}
}

// TestSleepCUDA: the weights of a model that sleeps at level 1 are in the host's memory.
func TestSleepCUDA(t *testing.T) {
	s := startCUDA(t, onCUDA{next: &atomic.Pointer[string]{}}, `serve: sleep: true`)
	want, err := s.reply("hello there", 10)
	if err != nil {
		t.Fatal(err)
	}
	_, _, busy, _ := s.engine().Memory()
	code, text := s.post(t, "/sleep", "")
	var r struct {
		Level int   `json:"level"`
		Freed int64 `json:"freed_bytes"`
		Kept  int64 `json:"kept_bytes"`
		Note  string
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	if planned := s.prepared().Ledger().Bytes("sleep"); r.Level != 1 || r.Kept == 0 || r.Kept > planned || !strings.Contains(r.Note, "host's memory") {
		t.Errorf("%s, planned %d", text, planned)
	}
	if code, text := s.post(t, "/wake_up", ""); code != 200 {
		t.Fatal(text)
	}
	if got, err := s.reply("hello there", 10); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, _, now, _ := s.engine().Memory(); now != busy {
		t.Errorf("%d bytes are free, %d before", now, busy)
	}
}
