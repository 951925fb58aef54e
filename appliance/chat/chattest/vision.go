package chattest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Vision is a loader without pictures. Items are replaced by "(", one # for each byte of the
// data behind the comma of their URL (of the rest of the URL, or of the uuid), and ")"; the #
// are the span. A rendered prompt has one Calls token for each item.
type Vision struct {
	Most map[string]int // of each kind; all that is supported is twice as much
	// Before, if not nil, is called by each Load; its error is that of Load.
	Before func(ctx context.Context, r chat.MediaRequest) error

	mu       sync.Mutex
	loaded   []chat.MediaRequest
	attached [][]chat.PromptItem
}

// Mark is the text of a placeholder.
const Mark = "[TOOL_CALLS]"

// Limit returns Most and twice as much.
func (v *Vision) Limit(kind string) (most, supported int) { return v.Most[kind], 2 * v.Most[kind] }

// Placeholder returns Mark.
func (v *Vision) Placeholder(string) (string, []int32) { return Mark, []int32{Calls} }

// Load returns an item of one span.
func (v *Vision) Load(ctx context.Context, r chat.MediaRequest) (chat.MediaItem, error) {
	v.mu.Lock()
	v.loaded = append(v.loaded, r)
	v.mu.Unlock()
	if v.Before != nil {
		if err := v.Before(ctx, r); err != nil {
			return chat.MediaItem{}, err
		}
	}
	data := r.URL[strings.LastIndexAny(r.URL, ",/")+1:]
	if data == "" {
		data = r.UUID
	}
	ids := make([]int32, len(data)+2)
	for i := range ids {
		ids[i] = '#'
	}
	ids[0], ids[len(ids)-1] = '(', ')'
	sum := sha256.Sum256([]byte(data))
	return chat.MediaItem{Tokens: ids, Hash: hex.EncodeToString(sum[:]), Spans: []chat.MediaSpan{{At: 1, Len: len(data), Value: data}}}, nil
}

// Attach records the items.
func (v *Vision) Attach(_ *engine.Request, items []chat.PromptItem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.attached = append(v.attached, items)
}

// Loaded returns the requests of all loads in order of their start.
func (v *Vision) Loaded() []chat.MediaRequest {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]chat.MediaRequest(nil), v.loaded...)
}

// Attached returns the items of each request of the engine.
func (v *Vision) Attached() [][]chat.PromptItem {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([][]chat.PromptItem(nil), v.attached...)
}
