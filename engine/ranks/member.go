package ranks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
)

// Member is what a rank says about itself before it reads a weight.
type Member struct {
	Rank  int    `json:"rank"`
	World int    `json:"world"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`

	// These must be equal on all ranks.
	Version    string `json:"version"`    // of vapp
	Profile    string `json:"profile"`    // hash of the resolved profile
	Checkpoint string `json:"checkpoint"` // fingerprint of the model's files
	Backend    string `json:"backend"`    // backend and kernel variant
}

func (m Member) String() string {
	return fmt.Sprintf("rank %d (%s, process %d)", m.Rank, m.Host, m.PID)
}

// RankError is why the ranks cannot run, or no longer run, one model together.
type RankError struct {
	Who string // the rank, as Member.String, or "rank 2"
	Why string
}

func (e *RankError) Error() string { return e.Who + ": " + e.Why }

// differs returns what keeps m and the leader apart, "" if nothing does.
func (m Member) differs(leader Member) string {
	var out []string
	for _, f := range []struct{ what, here, there, remedy string }{
		{"vapp's version", leader.Version, m.Version, "install one version on all hosts"},
		{"the profile", leader.Profile, m.Profile, "give all ranks the same profile, policies and flags"},
		{"the checkpoint", leader.Checkpoint, m.Checkpoint, "copy the same model files to all hosts"},
		{"backend and variant", leader.Backend, m.Backend, "set backend and cpu.variant to what all hosts have"},
	} {
		if f.here != f.there {
			out = append(out, fmt.Sprintf("%s is %s there and %s on rank 0 (%s): %s", f.what, short(f.there), short(f.here), leader.Host, f.remedy))
		}
	}
	return strings.Join(out, "; ")
}

// short returns the beginning of a hash.
func short(s string) string {
	if len(s) > 32 {
		return s[:16] + "…"
	}
	return s
}

// greeting is the payload of hello.
type greeting struct {
	Protocol int
	Nonce    []byte
	Member   Member
}

// answer is the payload of challenge and proof.
type answer struct {
	Nonce []byte `json:",omitempty"`
	MAC   []byte
}

// nonce returns 32 random bytes.
func nonce() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return b
}

// mac proves the key to the owner of theirs. side keeps a proof from being sent back.
func mac(key []byte, side string, rank int, mine, theirs []byte) []byte {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "vapp ranks %d %s %d\n", protocol, side, rank)
	h.Write(theirs)
	h.Write(mine)
	return h.Sum(nil)
}

// parse decodes the JSON of a payload.
func parse(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return &FrameError{"a frame of the rendezvous is no JSON: " + err.Error()}
	}
	return nil
}

// encode returns the JSON of a payload, whose types always have one.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
