package appliance

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"vapp.dev/schema"
)

// procFiles is a machine on which sshd (process 5000007) listens on port 22 of every address, vapp
// (process 5000090) on 8000 and 8001 of 127.0.0.1, and a process of the user 33, which is not visible,
// on port 80.
func procFiles() fstest.MapFS {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)} }
	return fstest.MapFS{
		"proc/net/tcp": {Data: []byte(`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 501 1 0 100 0 0 10 0
   1: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 502 1 0 100 0 0 10 0
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000    33        0 503 1 0 100 0 0 10 0
   3: 0100007F:1F42 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 504 1 0 100 0 0 10 0
nonsense
`)},
		"proc/net/tcp6": {Data: []byte(`  sl  local_address remote_address st
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 505 1 0 100 0 0 10 0
`)},
		"proc/5000007/fd/3": link("socket:[505]"),
		"proc/5000007/comm": {Data: []byte("sshd\n")},
		"proc/5000090/fd/0": link("/dev/null"),
		"proc/5000090/fd/4": link("socket:[501]"),
		"proc/5000090/fd/5": link("socket:[502]"),
		"proc/5000090/comm": {Data: []byte("vapp\n")},
		"proc/self/fd":      {Mode: fs.ModeDir},
	}
}

func TestPortHolder(t *testing.T) {
	files := procFiles()
	for _, c := range []struct {
		at   string
		port int
		who  string
		free int
	}{
		{"127.0.0.1", 8000, "vapp (process 5000090)", 8002},
		{"0.0.0.0", 8000, "vapp (process 5000090)", 8002},
		{"10.0.0.1", 8000, "", 8001},
		{"", 8001, "vapp (process 5000090)", 8002},
		{"10.0.0.1", 22, "sshd (process 5000007)", 23},
		{"::1", 22, "sshd (process 5000007)", 23},
		{"127.0.0.1", 80, "a process of the user 33", 81},
		{"127.0.0.1", 65535, "", 0},
	} {
		at, _ := netip.ParseAddr(c.at)
		if who, free := portHolder(files, at, c.port); who != c.who || free != c.free {
			t.Errorf("%s port %d: %q, %d; want %q, %d", c.at, c.port, who, free, c.who, c.free)
		}
	}
	if who, free := portHolder(fstest.MapFS{}, netip.Addr{}, 8000); who != "" || free != 8001 {
		t.Errorf("without /proc: %q, %d", who, free)
	}
}

func FuzzSocket(f *testing.F) {
	for line := range strings.Lines(string(procFiles()["proc/net/tcp"].Data)) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if s, ok := parseSocket(line); ok && !s.at.Addr().IsValid() {
			t.Errorf("%q: %+v", line, s)
		}
	})
}

// listening returns a profile with this host and port.
func listening(t *testing.T, host string, port int) *schema.Profile {
	t.Helper()
	p, err := schema.Parse("p.cue", fmt.Appendf(nil, `import "vapp.dev/schema"

schema.#Profile & {
	name: "a"
	model: source: "m"
	serve: host: %q
	serve: port: %d
}
`, host, port))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestListenInUse listens twice on one port.
func TestListenInUse(t *testing.T) {
	first, err := listen(listening(t, "127.0.0.1", 0))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	port := first.Addr().(*net.TCPAddr).Port
	_, err = listen(listening(t, "127.0.0.1", port))
	want := fmt.Sprintf("p.cue:7:9: serve.port: port %d of 127.0.0.1 is in use by this process (%d); start with --port ", port, os.Getpid())
	if runtime.GOOS != "linux" || len(sockets(os.DirFS("/"))) == 0 {
		want = "p.cue:7:9: serve.port: "
	}
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s…", err, want)
	}
}

// TestListenErrors checks the words for the other errors of listening.
func TestListenErrors(t *testing.T) {
	for _, c := range []struct {
		host  string
		port  int
		cause error
		want  string
	}{
		{"127.0.0.1", 80, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}, "p.cue:7:9: serve.port: this user may not listen on port 80, as on most ports below 1024; start with --port 8000, set serve.port, or give the program CAP_NET_BIND_SERVICE"},
		{"127.0.0.1", 443, syscall.EACCES, "p.cue:7:9: serve.port: this user may not listen on port 443, as on most ports below 1024; start with --port 8443, set"},
		{"192.0.2.1", 8000, syscall.EADDRNOTAVAIL, "p.cue:6:9: serve.host: 192.0.2.1 is no address of this machine, which has "},
		{"nowhere.example", 8000, &net.DNSError{Err: "no such host"}, `p.cue:6:9: serve.host: "nowhere.example" is no address and no name that this machine can resolve; start with --host 0.0.0.0`},
		{"127.0.0.1", 8000, &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", syscall.EMFILE)}, "p.cue:7:9: serve.port: cannot listen on 127.0.0.1:8000: " + syscall.EMFILE.Error() + "; start with another --port or --host"},
	} {
		err := listenError(listening(t, c.host, c.port), c.cause)
		if !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}
