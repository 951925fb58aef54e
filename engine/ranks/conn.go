package ranks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// protocol is the version of the frames. Ranks with another one are refused.
const protocol = 2

// kind says what a frame's payload is.
type kind uint8

// The frames of the rendezvous, in their order, and those of the run.
const (
	hello     kind = 1 + iota // follower: who it is, and a nonce
	challenge                 // leader: its proof of the key, and a nonce
	proof                     // follower: its proof of the key
	welcome                   // leader: what it has decided
	planned                   // follower: the digest of its plan
	start                     // leader: all ranks have the same plan
	loaded                    // follower: it has its weights
	launch                    // leader: the inputs of a step, which starts
	move                      // leader: pages to swap
	item                      // leader to the first stage: the size of an item to encode, whose bytes follow
	pixels                    // leader to the first stage: bytes of the item; behind the last ones it is encoded
	capture                   // leader: a graph to capture
	readAdapter
	putAdapter
	outputs // last stage: what a step has sampled
	sampled // other stages and ranks: the checksum of that
	done    // follower: the answer to capture and readAdapter
	drain   // follower: it was asked to end; rank 0 lets the running requests end first
	alive   // both: nothing else was sent for a while
	failed  // both: the group ends with this error
	end     // leader: the group ends
)

// The sizes of frames. Before a rank has proved that it knows the key it may send little.
const (
	headerBytes   = 5
	strangerBytes = 4 << 10
	memberBytes   = 1 << 20
	maxFrame      = 1 << 30
)

// conn sends and receives frames: the length of the payload in 4 bytes, little endian, the kind, the payload.
type conn struct {
	net.Conn
	in      *bufio.Reader
	silence time.Duration // the peer is lost after so long without a frame
	limit   int           // largest payload that is accepted now

	mu     sync.Mutex // of writes
	header [headerBytes]byte
	parts  [2][]byte // header and payload, which travel in one segment and are not copied
	frame  net.Buffers
}

func newConn(c net.Conn, silence time.Duration) *conn {
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 64<<10), silence: silence, limit: strangerBytes}
}

// send writes one frame.
func (c *conn) send(k kind, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	binary.LittleEndian.PutUint32(c.header[:], uint32(len(payload)))
	c.header[4] = byte(k)
	_ = c.SetWriteDeadline(time.Now().Add(c.silence))
	c.parts[0], c.parts[1] = c.header[:], payload
	c.frame = c.parts[:]
	_, err := c.frame.WriteTo(c.Conn)
	return c.explain(err)
}

// receive reads one frame into buf's storage. A frame of kind alive is returned like others.
func (c *conn) receive(buf []byte) (kind, []byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.silence))
	var h [headerBytes]byte
	if _, err := io.ReadFull(c.in, h[:]); err != nil {
		return 0, nil, c.explain(err)
	}
	k, n := kind(h[4]), binary.LittleEndian.Uint32(h[:])
	if k < hello || k > end || int64(n) > int64(c.limit) {
		return 0, nil, &FrameError{fmt.Sprintf("frame of kind %d with %d bytes; at most %d are expected", k, n, c.limit)}
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(c.in, buf)
	return k, buf, c.explain(err)
}

// expect reads a frame of one kind. A frame that says that the group has failed becomes its error.
func (c *conn) expect(want kind) ([]byte, error) {
	for {
		k, b, err := c.receive(nil)
		switch {
		case err != nil:
			return nil, err
		case k == failed:
			return nil, errors.New(string(b))
		case k == want:
			return b, nil
		case k != alive:
			return nil, &FrameError{fmt.Sprintf("frame of kind %d instead of %d", k, want)}
		}
	}
}

// explain puts the silence of a peer into words.
func (c *conn) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it was silent for %v", c.silence)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("its connection ended")
	}
	return err
}

// stayAlive sends frames until the connection is closed, so that the peer sees a rank that is busy.
func (c *conn) stayAlive(stop <-chan struct{}) {
	tick := time.NewTicker(c.silence / 6)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if c.send(alive, nil) != nil {
				return
			}
		}
	}
}

// FrameError is a frame that a rank of this version does not send.
type FrameError struct{ Why string }

func (e *FrameError) Error() string { return "ranks: " + e.Why }
