// Package load makes images and videos of requests ready for a model: it fetches, decodes and resizes
// them, and writes the tokens that stand for them in a prompt.
//
// Clients choose what is loaded, so memory is reserved before it is taken, and an image is refused
// by its header if it is too large. Loaded items are kept by content and by the client's uuid. It
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
	// Video and VideoTokens are those of videos; nil: the model takes none.
	Video       vision.VideoRule
	VideoTokens Tokens
	// Frames is the maximum number of frames of a video.
	Frames int
	// Limits are the maximum numbers of items of one prompt, by kind.
	Limits map[string]int
	// MaxTokens is the maximum number of tokens of an image or a frame; the plan has memory for it.
	MaxTokens int
	// Policy says where images come from.
	Policy fetch.Policy
	// Timeout and VideoTimeout are the maximum time to fetch an image or a video, and to wait for
	// memory.
	Timeout, VideoTimeout time.Duration
	// Pixels is the maximum width × height of an image before it is resized.
	Pixels int64
	// Memory is the maximum of bytes that loading takes, for all requests together, also those of Loaders before.
	Memory int64
	// Cache is the maximum of bytes of kept images; 0: none are kept.
	Cache int64
	// TrustKwargs lets requests have mm_processor_kwargs and media_io_kwargs.
	TrustKwargs bool
}

// Tokens are what stands for an image or a video in a prompt.
type Tokens struct {
	// Text is put before the texts of a message if the template takes strings.
	Text string
	// Row is the token of one encoded row. A rendered prompt has one for each image or video.
	Row int32
	// Before and After are put around the tokens of an image or a frame; nil: the template has them.
	Before, After []int32
}

// Loader loads images. It implements chat.Vision.
type Loader struct {
	c      Config
	fetch  *fetch.Fetcher
	memory *Memory
	cache  *cache
}

// New returns a Loader, which shares m with others; Memory.Use lets it begin. The error is that of the policy.
func New(c Config, m *Memory) (*Loader, error) {
	f, err := fetch.New(c.Policy)
	if err != nil {
		return nil, err
	}
	return &Loader{c: c, fetch: f, memory: m, cache: newCache()}, nil
}

// Limit implements chat.Vision.
func (l *Loader) Limit(kind string) (most, supported int) {
	if kind != "image" && (kind != "video" || l.c.Video == nil) {
		return 0, 0
	}
	return l.c.Limits[kind], maxItems
}

// maxItems is the maximum of multimodal.limits.
const maxItems = 1024

// Placeholder implements chat.Vision.
func (l *Loader) Placeholder(kind string) (text string, tokens []int32) {
	t := l.c.Tokens
	if kind == "video" {
		t = l.c.VideoTokens
	}
	return t.Text, []int32{t.Row}
}

// item is an image or a video that is ready for the encoder. It is never changed.
type item struct {
	key      [32]byte // of its data and options, in the cache
	hash     [32]byte // of its pictures
	tokens   []int32  // in a prompt
	pictures []*picture
}

// picture is an image, or a frame of a video.
type picture struct {
	hash    [32]byte // of the patches and their places
	patches vision.Patches
	at      int // its first token in those of the item
	tokens  int
}

// bytes returns the memory that i takes.
func (i *item) bytes() int64 {
	n := 4 * len(i.tokens)
	for _, p := range i.pictures {
		n += len(p.patches.Pixels) + 4*(len(p.patches.Across)+len(p.patches.Down))
	}
	return int64(n)
}

// add appends a picture with the tokens around it, behind those of a label.
func (i *item) add(p *picture, t Tokens, label []int32) {
	p.hash = hashOf(&p.patches)
	i.tokens = append(append(i.tokens, label...), t.Before...)
	p.at = len(i.tokens)
	for range p.tokens {
		i.tokens = append(i.tokens, t.Row)
	}
	i.tokens = append(i.tokens, t.After...)
	i.pictures = append(i.pictures, p)
}

// attached is a picture of a request, with the name of its item for other programs.
type attached struct {
	*picture
	name string
}

// Load implements chat.Vision.
func (l *Loader) Load(ctx context.Context, r chat.MediaRequest) (chat.MediaItem, error) {
	timeout, from := l.c.Timeout, l.image
	switch {
	case r.Kind == "video" && l.c.Video != nil:
		timeout, from = l.c.VideoTimeout, l.video
	case r.Kind != "image":
		return chat.MediaItem{}, chat.Errorf(chat.Invalid, "messages", "%s: the served model takes no %s.", r.At, r.What)
	}
	if err := l.trusted(r); err != nil {
		return chat.MediaItem{}, err
	}
	loading, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	held := l.memory.open(ctx, loading)
	defer held.close()
	i, options, err := from(loading, held, r)
	if err != nil {
		return chat.MediaItem{}, failure(err, r.Media)
	}
	held.keep(i.bytes()) // also of a kept item, which may leave the cache before the request ends
	l.cache.name(r.UUID, options, i)
	name := r.UUID
	if name == "" && r.Kind == "video" {
		name = hex.EncodeToString(i.hash[:]) // a frame is known by its video
	}
	out := chat.MediaItem{Tokens: i.tokens, Hash: hex.EncodeToString(i.hash[:])}
	for _, p := range i.pictures {
		out.Spans = append(out.Spans, chat.MediaSpan{At: p.at, Len: p.tokens, Value: attached{p, name}})
	}
	return out, nil
}

// named returns the kept item of the request's uuid.
func (l *Loader) named(held *holding, r chat.MediaRequest, options string) (*item, error) {
	i := l.cache.named(r.UUID, options)
	if i == nil {
		return nil, chat.Errorf(chat.Invalid, "messages", "%s: no %s with the uuid %q is kept; send it with its data.", r.At, r.Kind, short(r.UUID))
	}
	return i, held.reserve(i.bytes())
}

// image fetches, decodes and resizes an image, unless one of equal data and options is kept.
func (l *Loader) image(ctx context.Context, held *holding, r chat.MediaRequest) (*item, string, error) {
	rule, options, err := l.rule(r)
	if err != nil {
		return nil, "", err
	}
	if r.URL == "" {
		i, err := l.named(held, r, options)
		return i, options, err
	}
	got, err := l.fetch.Get(ctx, r.URL, held.reserve)
	if err != nil {
		return nil, "", err
	}
	key := keyOf(options, got.Data)
	if i := l.cache.data(key); i != nil {
		return i, options, held.reserve(i.bytes())
	}
	info, err := media.Header(got.Data)
	if err != nil {
		return nil, "", err
	}
	w, h := info.Size()
	if err := l.small(info); err != nil {
		return nil, "", err
	}
	grid, err := rule.Size(w, h, 0)
	if err == nil {
		err = l.fits(grid, r)
	}
	if err != nil {
		return nil, "", err
	}
	// Twice the pixels: a decoder may have an image in another form beside them.
	if err := held.reserve(2*3*int64(w)*int64(h) + patchBytes(grid, rule.Layout())); err != nil {
		return nil, "", err
	}
	img, err := media.Decode(got.Data, media.Bounds{Pixels: l.c.Pixels})
	if err != nil {
		return nil, "", err
	}
	p := &picture{tokens: grid.Tokens()}
	rule.Patches(&p.patches, img, grid)
	i := &item{key: key}
	i.add(p, l.c.Tokens, nil)
	i.hash = p.hash
	l.cache.add(i)
	return i, options, nil
}

// small refuses an image of more pixels than the profile allows.
func (l *Loader) small(info media.Info) error {
	w, h := info.Size()
	if int64(w) > l.c.Pixels/int64(max(h, 1)) {
		return &media.Error{Reason: media.TooLarge, Format: info.Format, Msg: fmt.Sprintf("%d × %d pixels are more than multimodal.maxSourcePixels, %d", w, h, l.c.Pixels)}
	}
	return nil
}

// fits refuses a picture of more tokens than the plan has.
func (l *Loader) fits(g vision.Grid, r chat.MediaRequest) error {
	what := r.Kind
	if what == "video" {
		what = "frame"
	}
	if n := g.Tokens(); n > l.c.MaxTokens {
		return chat.Errorf(chat.Invalid, "messages", "%s: the %s has %d tokens, and the server is planned for at most %d an image.", r.At, what, n, l.c.MaxTokens)
	}
	return nil
}

// patchBytes returns the memory of the patches of a grid.
func patchBytes(g vision.Grid, l vision.Layout) int64 {
	return int64(g.Across) * int64(g.Down) * (int64(l.Cols()) + 8)
}

// Attach implements chat.Vision.
func (l *Loader) Attach(r *engine.Request, items []chat.PromptItem) {
	for _, i := range items {
		for _, m := range i.Spans {
			p := m.Value.(attached)
			r.Items = append(r.Items, engine.Item{
				Hash: p.hash, Name: p.name, At: i.At + m.At, Tokens: m.Len,
				Pixels: p.patches.Pixels, Colours: p.patches.Colours, Across: p.patches.Across, Down: p.patches.Down,
			})
		}
	}
}

var _ chat.Vision = (*Loader)(nil)
