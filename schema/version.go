package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// VersionHash returns 64 hexadecimal digits that identify the definitions of this binary: profiles
// mean the same to two binaries with the same hash.
func VersionHash() string {
	h := sha256.New()
	for _, name := range cueNames() {
		text, err := cueFiles.ReadFile(name)
		if err != nil {
			panic("schema: " + err.Error()) // the files are embedded
		}
		fmt.Fprintf(h, "%s %d\n", name, len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
