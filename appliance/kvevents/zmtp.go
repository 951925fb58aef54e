package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// ZMTP 3.0, https://rfc.zeromq.org/spec/23/.
const (
	greetingBytes = 64
	flagMore      = 1
	flagLong      = 2
	flagCommand   = 4
	maxFrame      = 4096 // bytes of a frame that a peer may send: a subscription, a request, metadata

	handshakeTime = 10 * time.Second
)

// ProtocolError reports a peer that does not follow the protocol.
type ProtocolError struct{ What string }

func (e *ProtocolError) Error() string { return "ZMTP: " + e.What }

// conn is a connection after the handshake.
type conn struct {
	net.Conn
	in *bufio.Reader
}

// frame is one frame from a peer.
type frame struct {
	more, command bool
	body          []byte
}

func newConn(c net.Conn) *conn { return &conn{c, bufio.NewReaderSize(c, maxFrame)} }

// handshake greets a peer on c as a socket of type own, and accepts peers of the given types.
func handshake(c net.Conn, own string, peers ...string) (*conn, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, err
	}
	out := make([]byte, greetingBytes)
	out[0], out[9], out[10] = 0xff, 0x7f, 3
	copy(out[12:], "NULL")
	if _, err := c.Write(out); err != nil {
		return nil, err
	}
	k := newConn(c)
	var in [greetingBytes]byte
	if _, err := io.ReadFull(k.in, in[:]); err != nil {
		return nil, fmt.Errorf("ZMTP: greeting: %w", err)
	}
	switch {
	case in[0] != 0xff || in[9]&1 != 1:
		return nil, &ProtocolError{"the peer does not speak ZeroMQ"}
	case in[10] < 3:
		return nil, &ProtocolError{fmt.Sprintf("the peer speaks version %d, want 3", in[10])}
	case string(bytes.TrimRight(in[12:32], "\x00")) != "NULL":
		return nil, &ProtocolError{fmt.Sprintf("the peer asks for security mechanism %q, want NULL", bytes.TrimRight(in[12:32], "\x00"))}
	}
	if _, err := c.Write(appendFrame(nil, flagCommand, ready(own))); err != nil {
		return nil, err
	}
	f, err := k.read()
	if err != nil {
		return nil, err
	}
	kind, err := socketType(f)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(peers, kind) {
		return nil, &ProtocolError{fmt.Sprintf("a socket %.20q cannot talk to %s, want one of %v", kind, own, peers)}
	}
	return k, c.SetDeadline(time.Time{})
}

// ready returns the body of the command READY of a socket.
func ready(socket string) []byte {
	return appendProperty(appendProperty([]byte("\x05READY"), "Socket-Type", socket), "Identity", "")
}

func appendProperty(b []byte, name, value string) []byte {
	b = append(append(b, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

// socketType returns the type of socket in a peer's READY.
func socketType(f frame) (string, error) {
	name, rest, ok := command(f)
	if !ok || name != "READY" {
		return "", &ProtocolError{"the peer's first command is not READY"}
	}
	for len(rest) > 0 {
		n := int(rest[0])
		if len(rest) < 1+n+4 {
			break
		}
		key, after := string(rest[1:1+n]), rest[1+n:]
		size := binary.BigEndian.Uint32(after)
		if after = after[4:]; uint64(size) > uint64(len(after)) {
			break
		}
		if bytes.EqualFold([]byte(key), []byte("Socket-Type")) {
			return string(after[:size]), nil
		}
		rest = after[size:]
	}
	return "", &ProtocolError{"the peer's READY has no Socket-Type"}
}

// command splits the body of a command frame into its name and the rest.
func command(f frame) (name string, rest []byte, ok bool) {
	if !f.command || len(f.body) == 0 || int(f.body[0]) > len(f.body)-1 {
		return "", nil, false
	}
	n := int(f.body[0])
	return string(f.body[1 : 1+n]), f.body[1+n:], true
}

// read reads one frame. A frame longer than maxFrame is an error before any memory is taken for it.
func (k *conn) read() (frame, error) {
	flags, err := k.in.ReadByte()
	if err != nil {
		return frame{}, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return frame{}, &ProtocolError{fmt.Sprintf("a frame has the flags %#x", flags)}
	}
	var size [8]byte
	digits := size[7:]
	if flags&flagLong != 0 {
		digits = size[:]
	}
	if _, err := io.ReadFull(k.in, digits); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > maxFrame {
		return frame{}, &ProtocolError{fmt.Sprintf("a frame has %d bytes, at most %d are read", n, maxFrame)}
	}
	f := frame{more: flags&flagMore != 0, command: flags&flagCommand != 0, body: make([]byte, n)}
	_, err = io.ReadFull(k.in, f.body)
	return f, err
}

// appendFrame appends a frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) < 256 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	}
	return append(b, body...)
}

// message returns the frames of a published message.
func message(topic string, seq uint64, payload []byte) []byte {
	b := make([]byte, 0, len(topic)+len(payload)+32)
	b = appendFrame(b, flagMore, []byte(topic))
	b = appendFrame(b, flagMore, binary.BigEndian.AppendUint64(nil, seq))
	return appendFrame(b, 0, payload)
}

// pong returns the answer to a PING, ok is false for another frame. A PING has a time to live of two bytes and
// a context of at most 16, which comes back.
func pong(f frame) (answer []byte, ok bool) {
	name, rest, is := command(f)
	if !is || name != "PING" || len(rest) < 2 || len(rest) > 18 {
		return nil, false
	}
	return appendFrame(nil, flagCommand, append([]byte("\x04PONG"), rest[2:]...)), true
}

// protocolError reports whether err is the peer's fault, and not the network's.
func protocolError(err error) bool {
	var e *ProtocolError
	return errors.As(err, &e)
}
