package appliance

import (
	"net"
	"net/http"
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
