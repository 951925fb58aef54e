package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Hash returns 64 hexadecimal digits that identify the resolved profile. They are equal
// for different notations of the same values ("256K" and 262144, or a default and the same
// value written out). The contents of key files and environment variables are not included.
func (p *Profile) Hash() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("schema: " + err.Error()) // a Profile is plain data
	}
	h := sha256.New()
	h.Write(text)
	for _, k := range p.Serve.APIKeys { // hidden in the JSON
		sum := sha256.Sum256([]byte(k.secret))
		h.Write(sum[:])
	}
	if k := p.Parallel.Key; k != nil {
		sum := sha256.Sum256([]byte(k.secret))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
