package ranks

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"vapp.dev/engine/backend"
)

// agreement compares the tokens that ranks have sampled, step by step. Ranks that compute the same step sample the same
// tokens; if they do not, the model is no longer one.
type agreement struct {
	mu    sync.Mutex
	ranks int // that sample; 0: unknown yet
	steps map[uint64]*verdict
}

// verdict is what ranks have reported about one step.
type verdict struct {
	who     string
	sum     uint32
	reports int
}

// expect sets how many ranks report each step.
func (a *agreement) expect(ranks int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ranks, a.steps = ranks, map[uint64]*verdict{}
}

// report adds what a rank has sampled in a step. It fails if another rank has sampled other tokens.
func (a *agreement) report(who string, step uint64, sum uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.steps[step]
	switch {
	case v == nil:
		a.steps[step] = &verdict{who, sum, 1}
		v = a.steps[step]
	case v.sum != sum:
		return &RankError{who, fmt.Sprintf("it sampled other tokens in step %d than %s", step, v.who)}
	default:
		v.reports++
	}
	if v.reports >= a.ranks {
		delete(a.steps, step)
	}
	return nil
}

// checksum returns the checksum of the tokens that a launch has sampled; ok is false if it samples none.
func checksum(s *backend.Step, b backend.Binding) (sum uint32, ok bool) {
	if len(s.Sampled) == 0 {
		return 0, false
	}
	sum = crc32.ChecksumIEEE(bytesOf(s.Sampled[:b.Samples]))
	if s.Accepted != nil {
		sum = crc32.Update(sum, crc32.IEEETable, bytesOf(s.Accepted[:b.Seqs]))
	}
	return sum, true
}

// appendSampled returns the payload of sampled.
func appendSampled(out []byte, step uint64, sum uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(out, step), sum)
}
