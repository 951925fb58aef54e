package appliance

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// passed returns the service manager with these variables for process 7.
func passed(env map[string]string) systemd {
	return systemd{func(k string) string { return env[k] }, 7}
}

// TestSocketActivation checks that the socket of systemd is served, and what is refused.
func TestSocketActivation(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has systemd")
	}
	one := map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "1"}
	// descriptor returns a copy of a socket's descriptor, which the function under test closes.
	descriptor := func(c interface{ File() (*os.File, error) }) uintptr {
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		runtime.SetFinalizer(f, nil) // its descriptor is closed by the function
		return f.Fd()
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	dialled, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()

	l, err := passed(one).listener(descriptor(tcp.(*net.TCPListener)))
	if err != nil || l == nil || l.Addr().String() != tcp.Addr().String() {
		t.Fatalf("got %v, %v, want a listener at %v", l, err, tcp.Addr())
	}
	l.Close()
	for name, env := range map[string]map[string]string{
		"no variables":    nil,
		"another process": {"LISTEN_PID": "8", "LISTEN_FDS": "1"},
		"no sockets":      {"LISTEN_PID": "7", "LISTEN_FDS": "0"},
	} {
		if l, err := passed(env).listener(firstSocket); l != nil || err != nil {
			t.Errorf("%s: got %v, %v, want no listener", name, l, err)
		}
	}
	for _, c := range []struct {
		count string
		at    uintptr
		want  string
	}{
		{"two", firstSocket, "no number of sockets"},
		{"-1", firstSocket, "no number of sockets"},
		{"2", firstSocket, "passed 2 sockets and vapp serves one"},
		{"1", 1 << 20, "is no listening socket"},
		{"1", descriptor(unix.(*net.UnixListener)), "is not TCP; write ListenStream=HOST:PORT"},
		{"1", descriptor(dialled.(*net.TCPConn)), "write Accept=no"},
	} {
		l, err := passed(map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": c.count}).listener(c.at)
		var refused *SocketError
		if l != nil || !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("LISTEN_FDS=%s: got %v, %v, want a SocketError with %q", c.count, l, err, c.want)
		}
	}
}

// TestNotify checks what a server reports to its service manager: loading, ready, stopping.
func TestNotify(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no datagram sockets in the file system")
	}
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	next := func() string {
		b := make([]byte, 4096)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	s := start(t, "")
	if got := next(); !strings.HasPrefix(got, "STATUS=loading ") {
		t.Errorf("first: %q", got)
	}
	if got := next(); got != "READY=1\nSTATUS=ready: "+s.Appliance.url() {
		t.Errorf("second: %q", got)
	}
	r, err := visitor.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("READY=1 was sent and /readyz answers %s", r.Status)
	}
	s.drain()
	if got := next(); !strings.HasPrefix(got, "STOPPING=1\nSTATUS=draining: 0 requests running") {
		t.Errorf("third: %q", got)
	}
}

// TestNotifyUnreachable checks that a wrong NOTIFY_SOCKET is an error and no failure.
func TestNotifyUnreachable(t *testing.T) {
	s := passed(map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "none")})
	if err := s.notify("READY=1"); err == nil || !strings.Contains(err.Error(), "NOTIFY_SOCKET") {
		t.Errorf("got %v", err)
	}
	if err := passed(nil).notify("READY=1"); err != nil {
		t.Errorf("without a socket: %v", err)
	}
}
