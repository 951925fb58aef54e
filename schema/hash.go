package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Hash identifies the resolved profile: 64 hex digits, equal for two texts that
// say the same ("256K" and 262144, a default and the same value written out).
// What a key file or an environment variable holds is not part of it.
func (p *Profile) Hash() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("schema: " + err.Error()) // a Profile is plain data
	}
	h := sha256.New()
	h.Write(text)
	for _, k := range p.Serve.APIKeys { // marshalled hidden
		sum := sha256.Sum256([]byte(k.secret))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
