package ranks

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// FuzzPort sends any bytes to the control port: rank 0 refuses them, takes no rank, and neither panics nor hangs.
func FuzzPort(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x01{}"))
	f.Add([]byte("\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x13\x00\x00\x00\x01{\"Protocol\":1,\"N\":0}\x0a\x00\x00\x00\x03{\"MAC\":\"\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &Leader{o: options("key"), arrive: make(chan *peer, 1), stop: make(chan struct{})}
		l.greet(newConn(&stranger{in: bytes.NewReader(data)}, time.Minute))
		if len(l.arrive) > 0 {
			t.Fatal("a rank without the key was taken")
		}
	})
}

// stranger is a connection that has sent some bytes and closed its side.
type stranger struct {
	net.Conn
	in *bytes.Reader
}

func (s *stranger) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *stranger) Write(b []byte) (int, error)      { return len(b), nil }
func (s *stranger) Close() error                     { return nil }
func (s *stranger) SetReadDeadline(time.Time) error  { return nil }
func (s *stranger) SetWriteDeadline(time.Time) error { return nil }
func (s *stranger) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
