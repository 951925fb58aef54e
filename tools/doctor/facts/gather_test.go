package facts

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/appliance/hub"
)

// sources returns sources of a hub at endpoint, without backends.
func sources(t *testing.T, endpoint string) Sources {
	settings := hub.Settings{Cache: filepath.Join(t.TempDir(), "not", "yet"), Endpoint: endpoint, Token: "secret", Stall: time.Minute}
	return Sources{
		Machine: appliance.Machine{Hub: settings}, Hub: hub.NewClient(settings, "test"), Root: fstest.MapFS{},
		GPU: func() GPU { return GPU{Built: true} }, Library: func() Library { return Library{Version: "13.0.2"} }, Sandbox: func(context.Context) error { return errors.New("first\nsecond") },
	}
}

// TestGather reads the facts of a hub, a sandbox and a profile that does not exist.
func TestGather(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	from := sources(t, s.URL)
	from.Profile = filepath.Join(t.TempDir(), "none.cue")
	f, err := Gather(t.Context(), from)
	if err != nil || len(f.Unfinished) > 0 {
		t.Fatalf("%v, unfinished %v", err, f.Unfinished)
	}
	if h := f.Hub; h.Err != "" || !h.Token || h.Free <= 0 || !h.Writable || f.Clock.Hub.IsZero() {
		t.Errorf("hub %+v, its clock %v", h, f.Clock.Hub)
	}
	if f.Sandbox.Err != "first; second" || !f.GPU.Built || f.Library.Version != "13.0.2" || f.Processor.Online < 1 {
		t.Errorf("%+v", f)
	}
	if !strings.Contains(f.Profile.Err, "none.cue: no such file") || f.Profile.Where != "" {
		t.Errorf("profile %+v", f.Profile)
	}
	s.Close()
	if f, err = Gather(t.Context(), from); err != nil || f.Hub.Err == "" || strings.Contains(f.Hub.Err, "secret") || !f.Clock.Hub.IsZero() {
		t.Errorf("a closed hub: %+v, %v", f.Hub, err)
	}
	from.Hub.Endpoint = "http://user:secret@127.0.0.1:1"
	if f, err = Gather(t.Context(), from); err != nil || strings.Contains(f.Hub.Endpoint+f.Hub.Err, "secret") {
		t.Errorf("a password: %+v, %v", f.Hub, err)
	}
	from.Hub.Cache = filepath.Join(t.TempDir(), "file")
	if err = os.WriteFile(from.Hub.Cache, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = Gather(t.Context(), from); err != nil || f.Hub.Writable {
		t.Errorf("a cache that is a file: %+v, %v", f.Hub, err)
	}
	from.Hub.Offline = true
	if f, err = Gather(t.Context(), from); err != nil || f.Hub.Err != "" || !f.Hub.Offline {
		t.Errorf("offline: %+v, %v", f.Hub, err)
	}
}

// TestGatherCancelled checks that parts that hang are named, and that a signal ends the wait.
func TestGatherCancelled(t *testing.T) {
	from := sources(t, "http://127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	from.GPU = func() GPU { cancel(); <-hang; return GPU{} }
	f, err := Gather(ctx, from)
	if !errors.Is(err, context.Canceled) || !slices.Contains(f.Unfinished, "gpu") {
		t.Errorf("%v, unfinished %v", err, f.Unfinished)
	}
}

// TestGatherHangs checks a hub that does not answer, and a driver and a sandbox that hang.
func TestGatherHangs(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(hang) })
	from := sources(t, s.URL)
	from.limits = patience{all: time.Minute, reach: time.Millisecond, read: time.Second}
	f, err := Gather(t.Context(), from)
	if err != nil || f.Hub.Err != "no answer within 1ms" {
		t.Errorf("hub: %q, %v", f.Hub.Err, err)
	}
	from.limits.all = time.Millisecond
	from.GPU = func() GPU { <-hang; return GPU{} }
	from.Library = func() Library { <-hang; return Library{} }
	from.Sandbox = func(context.Context) error { <-hang; return nil }
	if f, err = Gather(t.Context(), from); err != nil || !slices.Contains(f.Unfinished, "cuBLASLt") || !slices.Contains(f.Unfinished, "gpu") || !slices.Contains(f.Unfinished, "template sandbox") {
		t.Errorf("unfinished %v, %v", f.Unfinished, err)
	}
}

// TestListen checks a port that is free, one that this process has, and an address of none.
func TestListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	number := l.Addr().(*net.TCPAddr).Port
	table, err := os.ReadFile("/proc/net/tcp")
	if err == nil && strings.Count(string(table), "\n") < 2 {
		err = errors.New("the system lists no sockets")
	}
	at := listen("127.0.0.1", number)
	if !at.Used || err == nil && !strings.HasPrefix(at.Holder, "this process (") {
		t.Errorf("a port in use: %+v", at)
	}
	l.Close()
	if at := listen("127.0.0.1", 0); at.Err != "" || at.Used {
		t.Errorf("any port: %+v", at)
	}
	if at := listen("192.0.2.1", 80); at.Err == "" || at.Used {
		t.Errorf("an address of another machine: %+v", at)
	}
}

// TestWeightsOf finds the weights of a folder whose name is a pattern, and a file.
func TestWeightsOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m[1]*")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	want := []string{filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "b.safetensors")}
	for _, name := range append(want, filepath.Join(dir, "config.json")) {
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := weightsOf(dir); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := weightsOf("m.gguf"); !slices.Equal(got, []string{"m.gguf"}) {
		t.Errorf("%q", got)
	}
}
