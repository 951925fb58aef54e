package appliance

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// loads runs a server of the toy model on a machine whose loads hang.
func loads(t *testing.T, on backend.Opener) *server {
	t.Helper()
	toy := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	s := &server{profile: filepath.Join(t.TempDir(), "p.cue"), log: &logBuffer{}, ended: make(chan error, 1)}
	writeFile(t, s.profile, profileText(toy, ""))
	a, err := New(Config{Profile: s.profile, Machine: Machine{Backends: []backend.Opener{on}}, Version: "test", Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	s.Appliance, s.url = a, "http://"+a.Addr().String()
	ctx, drain := context.WithCancel(context.Background())
	s.drain = drain
	go func() { s.ended <- a.Run(ctx) }()
	return s
}

// patient sets the time limits of loads for a test.
func patient(t *testing.T, quiet, end time.Duration) {
	wasQuiet, wasEnd := quietLoad, endLoad
	quietLoad, endLoad = quiet, end
	t.Cleanup(func() { quietLoad, endLoad = wasQuiet, wasEnd })
}

// stuck is backend ref with a device whose Open hangs until the test releases it.
type stuck struct {
	ref.Opener
	opening, let chan bool
}

func (o stuck) Open(backend.Facts, backend.Settings, backend.Reservation) (backend.Device, error) {
	close(o.opening)
	<-o.let
	return nil, errKernel
}

// TestStuckLoad checks that the log names what a hanging load waits for, and that Run
// returns without it after one signal and at once after two.
func TestStuckLoad(t *testing.T) {
	patient(t, 10*time.Millisecond, 10*time.Millisecond)
	why := errors.New("a second signal")
	for _, twice := range []bool{false, true} {
		on := stuck{opening: make(chan bool), let: make(chan bool)}
		s := loads(t, on)
		<-on.opening
		s.eventually(t, "a word", func() bool {
			return strings.Contains(s.log.String(), `level=WARN msg="loading: no progress for 10ms" awaiting="the device to open, or the first weight"`)
		})
		if status, text := s.get(t, "/readyz"); status != http.StatusServiceUnavailable || text != `{"phase":"loading"}` {
			t.Errorf("%d %s", status, text)
		}
		s.drain()
		if twice {
			s.Abort(why)
		}
		err := <-s.ended
		close(on.let)
		if twice != errors.Is(err, why) || !twice && err != nil {
			t.Errorf("twice %v: Run: %v", twice, err)
		}
		if log := s.log.String(); !strings.Contains(log, `msg="loading did not stop in time; abandoning it"`) || strings.Contains(log, `msg="stopped while loading"`) == twice {
			t.Errorf("twice %v:\n%s", twice, log)
		}
	}
}

// slow is backend ref with a device that packs its first weight until the test releases it.
type slow struct {
	ref.Opener
	packing, let chan bool
	closed       *atomic.Bool
}

func (o slow) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	d, err := o.Opener.Open(f, s, r)
	return &slowDevice{Device: d, o: o}, err
}

type slowDevice struct {
	backend.Device
	o     slow
	first sync.Once
}

func (d *slowDevice) Pack(i int, src backend.RowReader) error {
	d.first.Do(func() { close(d.o.packing) })
	<-d.o.let
	return d.Device.Pack(i, src)
}

func (d *slowDevice) Close() error {
	d.o.closed.Store(true)
	return d.Device.Close()
}

// TestStopWhileLoading checks that a cancelled load stops after the current weight and
// closes the device.
func TestStopWhileLoading(t *testing.T) {
	patient(t, time.Hour, time.Hour)
	on := slow{packing: make(chan bool), let: make(chan bool), closed: &atomic.Bool{}}
	s := loads(t, on)
	<-on.packing
	s.drain()
	close(on.let)
	if err := <-s.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if log := s.log.String(); !on.closed.Load() || !strings.Contains(log, `msg="stopped while loading"`) || strings.Contains(log, "is left") {
		t.Errorf("closed %v:\n%s", on.closed.Load(), log)
	}
}
