package appliance

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSocketActivation checks that the socket of systemd is served, and what is refused.
func TestSocketActivation(t *testing.T) {
	one := map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "1"}
	// descriptor returns a copy of a socket's descriptor, which the function under test closes.
	descriptor := func(c interface{ File() (*os.File, error) }) uintptr {
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		return uintptr(d)
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
