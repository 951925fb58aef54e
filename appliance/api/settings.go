package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/responses"
)

// Settings are what may change while the server runs. They are one value behind
// one pointer: a request keeps those it began with, those of the conversation
// included. Treat a Settings as read-only once given.
type Settings struct {
	Keys          []string // bearer tokens; none: no guard, unless Guarded
	Guarded       bool     // a key is required even where there is none: all have been revoked
	GuardMetrics  bool     // /metrics asks for a key too
	MaxBodyBytes  int64
	MaxConcurrent int // requests that may be open; 0: no limit
	PerKey        PerKey
	BodyTimeout   time.Duration // for a client to send a body; 0: none
	WriteTimeout  time.Duration // for a client to take something of a reply; 0: none
	CORS          CORS
	Hosts         Hosts
	AccessLog     bool // a line for each request that was answered
	LogRequests   bool // a line for each request for tokens before it is answered
	NoDocs        bool // no /openapi.json, no pages that show it
	Chat          chat.Settings

	RequestIDHeaders  bool // replies carry X-Request-Id
	ForceIncludeUsage bool // streams end with usage, asked for or not
	ReasoningContent  bool // the thinking part has its older name too
}

// live are the settings in the form that requests need.
type live struct {
	Settings
	keys   [][sha256.Size]byte
	meters []*meter // of the keys
	owners []responses.Owner
	nobody *meter // of all clients where there are no keys
}

// newLive keeps the meters of the keys that stay; old may be nil.
func newLive(s Settings, old *live) *live {
	l := &live{Settings: s, nobody: &meter{}}
	known := map[[sha256.Size]byte]*meter{}
	if old != nil {
		l.nobody = old.nobody
		for i, k := range old.keys {
			known[k] = old.meters[i]
		}
	}
	for _, k := range s.Keys {
		sum := sha256.Sum256([]byte(k))
		if known[sum] == nil {
			known[sum] = &meter{}
		}
		l.keys, l.meters = append(l.keys, sum), append(l.meters, known[sum])
		own := sha256.Sum256(append([]byte("vapp responses "), sum[:]...)) // the file holds no hash of a key itself
		l.owners = append(l.owners, responses.Owner(own[:16]))
	}
	return l
}

// find is the index of a key, -1 for none. It compares with every key, in a time
// that does not tell which fits.
func (l *live) find(key string) int {
	sum := sha256.Sum256([]byte(key))
	found := -1
	for i := range l.keys {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], l.keys[i][:]), i, found)
	}
	return found
}
