package kvevents

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"time"
)

// endMarker is the sequence number after the last batch of a replay, −1. Its payload is empty.
const endMarker = math.MaxUint64

// replyTime is how long a client may take to read one batch of a replay.
const replyTime = 30 * time.Second

// Start returns the sequence number from which a request asks for batches. A ROUTER sees the frames
// after the peer's identity: an empty one, and the number in eight bytes, big-endian. Its errors
// are *ProtocolError.
func Start(request [][]byte) (uint64, error) {
	switch {
	case len(request) != 2 || len(request[0]) != 0:
		return 0, &ProtocolError{fmt.Sprintf("a replay request has %d frames, want an empty one and the sequence number; a DEALER sends both, a REQ the second", len(request))}
	case len(request[1]) != 8:
		return 0, &ProtocolError{fmt.Sprintf("the sequence number of a replay request has %d bytes, want 8", len(request[1]))}
	}
	return binary.BigEndian.Uint64(request[1]), nil
}

// serveReplay serves a peer of the ROUTER socket until it leaves. A wrong request gets no answer,
// as in vLLM, and the peer can go on.
func (p *Publisher) serveReplay(c net.Conn) error {
	k, err := handshake(c, "ROUTER", "REQ", "DEALER", "ROUTER")
	if err != nil {
		return err
	}
	for {
		request, err := k.request(c)
		if err != nil {
			return err
		}
		start, err := Start(request)
		if err != nil {
			p.counts.refused.Add(1)
			p.cfg.Log.Debug("KV events: replay", "peer", c.RemoteAddr().String(), "error", err.Error())
			continue
		}
		if err := p.answer(c, start); err != nil {
			return err
		}
		p.counts.replays.Add(1)
	}
}

// maxFrames is the most frames of a request.
const maxFrames = 16

// request reads the frames of one message. It answers PINGs.
func (k *conn) request(c net.Conn) ([][]byte, error) {
	var out [][]byte
	for {
		f, err := k.read()
		if err != nil {
			return nil, err
		}
		if f.command {
			if answer, ok := pong(f); ok {
				if err := write(c, answer); err != nil {
					return nil, err
				}
			}
			continue
		}
		if out = append(out, f.body); !f.more {
			return out, nil
		}
		if len(out) == maxFrames {
			return nil, &ProtocolError{fmt.Sprintf("a replay request has more than %d frames", maxFrames)}
		}
	}
}

// answer sends the kept batches from start on, and the end marker. Batches that are made meanwhile are
// sent too.
func (p *Publisher) answer(c net.Conn, start uint64) error {
	for {
		k, ok := p.buffer.from(start)
		if !ok {
			return write(c, reply(endMarker, nil))
		}
		if err := write(c, reply(k.seq, k.payload)); err != nil {
			return err
		}
		start = k.seq + 1
	}
}

// reply returns the frames of one batch of a replay.
func reply(seq uint64, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+24)
	b = appendFrame(b, flagMore, nil)
	b = appendFrame(b, flagMore, binary.BigEndian.AppendUint64(nil, seq))
	return appendFrame(b, 0, payload)
}

func write(c net.Conn, b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(replyTime)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}
