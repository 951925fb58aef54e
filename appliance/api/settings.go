package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/responses"
)

// Settings are the options that can change while the server runs. A request keeps the
// Settings that it started with, Chat included. Do not modify a Settings after passing
// it to the Server.
type Settings struct {
	Keys          []string // bearer tokens; none: no guard, unless Guarded
	Guarded       bool     // a key is required even if Keys is empty, since all were revoked
	GuardMetrics  bool     // /metrics requires a key too
	MaxBodyBytes  int64
	MaxConcurrent int // open requests; 0: no limit
	PerKey        PerKey
	BodyTimeout   time.Duration // for a client to send a body; 0: none
	WriteTimeout  time.Duration // for a client to read a part of the reply; 0: none
	CORS          CORS
	Hosts         Hosts
	AccessLog     bool // a line for each answered request
	LogRequests   bool // a line for each request for tokens before it is answered
	LoadAdapters  bool // clients may load and unload LoRA adapters
	Sleep         bool // clients may let the model sleep
	// Service is the service that Chat is for: a request that enters another one gets the newest
	// settings. nil: any.
	Service *chat.Service
	NoDocs  bool // no /openapi.json and no pages of it
	Chat    chat.Settings

	RequestIDHeaders  bool // replies carry X-Request-Id
	ForceIncludeUsage bool // streams always end with the usage
	ReasoningContent  bool // replies also have the reasoning under its older name
}

// live holds the settings in the form that requests need.
type live struct {
	Settings
	keys      [][sha256.Size]byte
	meters    []*meter // one for each key
	owners    []responses.Owner
	anonymous *meter // of all clients, when there are no keys
}

// newLive returns the live form of s. Keys that were in old, which may be nil, keep
// their meters.
func newLive(s Settings, old *live) *live {
	l := &live{Settings: s, anonymous: &meter{}}
	known := map[[sha256.Size]byte]*meter{}
	if old != nil {
		l.anonymous = old.anonymous
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
		own := sha256.Sum256(append([]byte("vapp responses "), sum[:]...)) // the store's file must not contain the key's own hash
		l.owners = append(l.owners, responses.Owner(own[:16]))
	}
	return l
}

// find returns the index of a key, -1 for none. It compares all keys in constant time,
// so that the time does not reveal a match.
func (l *live) find(key string) int {
	sum := sha256.Sum256([]byte(key))
	found := -1
	for i := range l.keys {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], l.keys[i][:]), i, found)
	}
	return found
}
