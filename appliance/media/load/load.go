// Package load makes images of requests ready for a model: it fetches, decodes and resizes them, and
// writes the tokens that stand for them in a prompt.
//
// Clients choose what is loaded, so memory is reserved before it is taken, and an image is refused
// by its header if it is too large. Loaded images are kept by content and by the client's uuid. It
// must not know of routes, and it does not decode or fetch anything itself: appliance/media,
// appliance/media/fetch and engine/vision do. Start reading at Loader.Load.
package load

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/media"
	"vapp.dev/appliance/media/fetch"
	"vapp.dev/engine"
	"vapp.dev/engine/vision"
)

// Config holds the options of a Loader.
type Config struct {
	Rule   vision.Rule
	Tokens Tokens
	// Limits are the maximum numbers of items of one prompt, by kind.
	Limits map[string]int
	// MaxTokens is the maximum number of tokens of an image; the plan has memory for it.
	MaxTokens int
	// Policy says where images come from.
	Policy fetch.Policy
	// Timeout is the maximum time to fetch an image, and to wait for memory.
	Timeout time.Duration
	// Pixels is the maximum width × height of an image before it is resized.
	Pixels int64
	// Memory is the maximum of bytes that loading takes, for all requests together.
	Memory int64
	// Cache is the maximum of bytes of kept images; 0: none are kept.
	Cache int64
	// TrustKwargs lets requests have mm_processor_kwargs and media_io_kwargs.
	TrustKwargs bool
}

// Tokens are what stands for an image in a prompt.
type Tokens struct {
	// Text is put before the texts of a message if the template takes strings.
	Text string
	// Image is the token of one encoded row. A rendered prompt has one for each image.
	Image int32
	// Before and After are put around the tokens of an image; nil: the template has them.
	Before, After []int32
}

// Loader loads images. It implements chat.Vision.
type Loader struct {
	c      Config
	fetch  *fetch.Fetcher
	memory *memory
	cache  *cache
}

// New returns a Loader. The error is that of the policy.
func New(c Config) (*Loader, error) {
	f, err := fetch.New(c.Policy)
	if err != nil {
		return nil, err
	}
	return &Loader{c: c, fetch: f, memory: newMemory(c.Memory), cache: newCache(c.Cache)}, nil
}

// Limit implements chat.Vision.
func (l *Loader) Limit(kind string) (most, supported int) {
	if kind != "image" {
		return 0, 0
	}
	return l.c.Limits[kind], maxItems
}

// maxItems is the maximum of multimodal.limits.
const maxItems = 1024

// Placeholder implements chat.Vision.
func (l *Loader) Placeholder(string) (text string, tokens []int32) {
	return l.c.Tokens.Text, []int32{l.c.Tokens.Image}
}

// picture is an image that is ready for the encoder. It is never changed.
type picture struct {
	key     [32]byte // of its data and options, in the cache
	hash    [32]byte // of the patches and their places
	patches vision.Patches
	tokens  int
}

// bytes returns the memory that p takes.
func (p *picture) bytes() int64 {
	return 4 * int64(len(p.patches.Pixels)+len(p.patches.Across)+len(p.patches.Down))
}

// attached is a picture of a request, with the client's name for it.
type attached struct {
	*picture
	name string
}

// Load implements chat.Vision.
func (l *Loader) Load(ctx context.Context, r chat.MediaRequest) (chat.MediaItem, error) {
	if r.Kind != "image" {
		return chat.MediaItem{}, chat.Errorf(chat.Invalid, "messages", "%s: the served model takes no %s.", r.At, r.What)
	}
	rule, options, err := l.rule(r)
	if err != nil {
		return chat.MediaItem{}, err
	}
	loading, cancel := context.WithTimeout(ctx, l.c.Timeout)
	defer cancel()
	held := l.memory.open(ctx, loading)
	defer held.close()
	var p *picture
	if r.URL == "" {
		p, err = l.named(held, r, options)
	} else {
		p, err = l.picture(loading, held, r, rule, options)
	}
	if err != nil {
		return chat.MediaItem{}, failure(err, r.At)
	}
	held.keep(p.bytes()) // also of a kept picture, which may leave the cache before the request ends
	l.cache.name(r.UUID, options, p)
	t := l.c.Tokens
	ids := make([]int32, 0, len(t.Before)+p.tokens+len(t.After))
	ids = append(ids, t.Before...)
	for range p.tokens {
		ids = append(ids, t.Image)
	}
	span := chat.MediaSpan{At: len(t.Before), Len: p.tokens, Hash: hex.EncodeToString(p.hash[:]), Value: attached{p, r.UUID}}
	return chat.MediaItem{Tokens: append(ids, t.After...), Spans: []chat.MediaSpan{span}}, nil
}

// named returns the kept image of the request's uuid.
func (l *Loader) named(held *holding, r chat.MediaRequest, options string) (*picture, error) {
	p := l.cache.named(r.UUID, options)
	if p == nil {
		return nil, chat.Errorf(chat.Invalid, "messages", "%s: no image with the uuid %q is kept; send it with its data.", r.At, short(r.UUID))
	}
	return p, held.reserve(p.bytes())
}

// picture fetches, decodes and resizes an image, unless one of equal data and options is kept.
func (l *Loader) picture(ctx context.Context, held *holding, r chat.MediaRequest, rule vision.Rule, options string) (*picture, error) {
	item, err := l.fetch.Get(ctx, r.URL, held.reserve)
	if err != nil {
		return nil, err
	}
	key := keyOf(item.Data, options)
	if p := l.cache.data(key); p != nil {
		return p, held.reserve(p.bytes())
	}
	info, err := media.Header(item.Data)
	if err != nil {
		return nil, err
	}
	w, h := info.Size()
	if int64(w) > l.c.Pixels/int64(max(h, 1)) {
		return nil, &media.Error{Reason: media.TooLarge, Format: info.Format, Msg: fmt.Sprintf("%d × %d pixels are more than multimodal.maxSourcePixels, %d", w, h, l.c.Pixels)}
	}
	grid, err := rule.Size(w, h, 0)
	if err != nil {
		return nil, err
	}
	if n := grid.Tokens(); n > l.c.MaxTokens {
		return nil, chat.Errorf(chat.Invalid, "messages", "%s: the image has %d tokens, and the server is planned for at most %d an image.", r.At, n, l.c.MaxTokens)
	}
	patches := int64(grid.Across) * int64(grid.Down)
	// Twice the pixels: a decoder may have an image in another form beside them.
	if err := held.reserve(2*3*int64(w)*int64(h) + patches*(4*int64(rule.Layout().Cols())+8)); err != nil {
		return nil, err
	}
	img, err := media.Decode(item.Data, media.Bounds{Pixels: l.c.Pixels})
	if err != nil {
		return nil, err
	}
	p := &picture{key: key, tokens: grid.Tokens()}
	rule.Patches(&p.patches, img, grid)
	p.hash = hashOf(&p.patches)
	l.cache.add(p)
	return p, nil
}

// Attach implements chat.Vision.
func (l *Loader) Attach(r *engine.Request, items []chat.PromptItem) {
	for _, m := range items {
		p := m.Value.(attached)
		r.Items = append(r.Items, engine.Item{
			Hash: p.hash, Name: p.name, At: m.At, Tokens: m.Len,
			Pixels: p.patches.Pixels, Across: p.patches.Across, Down: p.patches.Down,
		})
	}
}

var _ chat.Vision = (*Loader)(nil)
