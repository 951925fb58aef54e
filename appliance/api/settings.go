package api

import (
	"crypto/sha256"
	"crypto/subtle"

	"vapp.dev/appliance/chat"
)

// Settings are what may change while the server runs. They are one value behind
// one pointer: a request keeps those it began with, those of the conversation
// included. Treat a Settings as read-only once given.
type Settings struct {
	Keys          []string // bearer tokens; none: no guard
	GuardMetrics  bool     // /metrics asks for a key too
	MaxBodyBytes  int64
	MaxConcurrent int // requests that may be open; 0: no limit
	CORS          CORS
	AccessLog     bool
	Chat          chat.Settings
}

// live are the settings in the form that requests need.
type live struct {
	Settings
	keys [][sha256.Size]byte
}

func newLive(s Settings) *live {
	l := &live{Settings: s}
	for _, k := range s.Keys {
		l.keys = append(l.keys, sha256.Sum256([]byte(k)))
	}
	return l
}

// knows compares with every key, in a time that does not tell which fits.
func (l *live) knows(key string) bool {
	sum := sha256.Sum256([]byte(key))
	found := 0
	for i := range l.keys {
		found |= subtle.ConstantTimeCompare(sum[:], l.keys[i][:])
	}
	return found == 1
}
