package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/models"
	"vapp.dev/schema"
)

// imageBudgets are the values of multimodal.image.tokens.
var imageBudgets = []int{70, 140, 280, 560, 1120}

// mostPixels is the maximum of multimodal.image.maxPixels.
const mostPixels = 178_956_970

// images returns " with 8 images of 1,120".
func (a *Answer) images() string {
	switch {
	case a.Images == 0:
		return ""
	case a.ImageTokens == 0:
		return " with " + numberOf(a.Images, "image")
	}
	return fmt.Sprintf(" with %s of %s", numberOf(a.Images, "image"), Group(int64(a.ImageTokens)))
}

// need is a change that the goal's images need.
type need struct {
	path, old, new string
	why            string // what is in the way, as a sentence of the reason
	cost           string
	apply          func(*schema.Profile)
}

// withImages returns w with all that the images of a need: limits, the size of images, the length of
// sequences and of steps. It sets a's tokens and Needed, and the reason if something is needed. why
// is why no change lets the images in.
func (w resolved) withImages(a *Answer) (v resolved, why string) {
	tower, why := w.tower()
	if why != "" {
		return w, why
	}
	p, err := w.allowing(1)
	if err != nil {
		return w, err.Error()
	}
	shape, most := Images(p, tower)
	if most == 0 {
		return w, w.in.Model.Source.Name + " has no vision tower, and nothing changes that"
	}
	if a.ImageTokens == 0 {
		a.ImageTokens = most
	}
	a.goal.ImageTokens = a.ImageTokens
	largest, largestIs := mostPixels/(shape.Side*shape.Side*shape.Square), "maxPixels"
	if shape.Budgets {
		largest, largestIs = imageBudgets[len(imageBudgets)-1], "tokens"
	}
	taken := a.goal.imageTokens()
	if a.Tokens == 0 {
		a.Tokens = taken
	}
	switch {
	case a.ImageTokens > largest:
		return w, fmt.Sprintf("an image of %s has at most %s tokens (multimodal.image.%s)", w.in.Model.Source.Name, Group(int64(largest)), largestIs)
	case a.Tokens > w.in.Model.Config.MaxPositionEmbeddings:
		return w, "" // answer says so
	case a.Tokens < taken:
		return w, fmt.Sprintf("the images take %s tokens, with %d around each", Group(int64(taken)), imageMarkers)
	}
	needs := w.imageNeeds(a, shape, most)
	if len(needs) == 0 {
		return w, ""
	}
	a.Reason = w.reasonOf(needs, a, most)
	return w.withNeeds(a, needs, tower)
}

// tower returns the model with its vision tower. why is why it has none that is served.
func (w resolved) tower() (m *engine.Model, why string) {
	m, b := w.in.Model, w.in.Model.Source.Build
	if !b.Vision {
		b.Vision = true
		var err error
		if m, err = m.With(b); err != nil {
			return nil, err.Error()
		}
	}
	if sees, has := m.Family.(models.Encoder); !has || sees.Patches() == 0 {
		return nil, m.Source.Name + " has no vision tower, and nothing changes that"
	}
	return m, ""
}

// allowing returns a copy of the profile that allows at least n images.
func (w resolved) allowing(n int) (*schema.Profile, error) {
	p := *w.in.Profile
	m, err := multimodalOf(&p)
	if err != nil {
		return nil, err
	}
	m.Limits.Image = max(m.Limits.Image, n)
	return &p, nil
}

// multimodalOf gives p a multimodal of its own and returns it: a copy of the one it has, else the
// schema's defaults.
func multimodalOf(p *schema.Profile) (*schema.Multimodal, error) {
	var m schema.Multimodal
	if p.Multimodal == nil {
		d, err := schema.Parse("defaults.cue", []byte("import \"vapp.dev/schema\"\nschema.#Profile & {name: \"defaults\", model: source: \"x\", multimodal: {}}\n"))
		if err != nil {
			return nil, err
		}
		m = *d.Multimodal
	} else {
		m = *p.Multimodal
	}
	if m.Image != nil {
		image := *m.Image
		m.Image = &image
	}
	p.Multimodal = &m
	return &m, nil
}

// imageNeeds returns what the profile lacks for the images of a, in the order in which it can be
// changed.
func (w resolved) imageNeeds(a *Answer, shape models.ImageShape, most int) (out []need) {
	o, limit := w.options, 0
	if m := w.in.Profile.Multimodal; m != nil {
		limit = m.Limits.Image
	}
	number := func(path string, old, new int, why, cost string, apply func(*schema.Profile)) {
		out = append(out, need{path, fmt.Sprint(old), fmt.Sprint(new), why, cost, apply})
	}
	size := most
	if a.ImageTokens > most {
		size = a.ImageTokens
		if shape.Budgets {
			size = imageBudgets[slices.IndexFunc(imageBudgets, func(n int) bool { return n >= a.ImageTokens })]
		}
	}
	seqs, length := max(o.MaxNumSeqs, a.Seqs), o.MaxModelLen
	longer := length > 0 && a.Tokens > length && a.Tokens <= w.in.Model.Config.MaxPositionEmbeddings
	if longer {
		length = a.Tokens
	}
	batch, why := max(o.MaxNumBatchedTokens, seqs), fmt.Sprintf("a step has %s tokens", Group(int64(o.MaxNumBatchedTokens)))
	if shape.Budgets && size > batch {
		batch = size
		why += fmt.Sprintf(", and computes an image of up to %s whole", Group(int64(size)))
	}
	if !o.ChunkedPrefill {
		batch = max(batch, length)
	}
	if batch > o.MaxNumBatchedTokens {
		number("scheduler.maxNumBatchedTokens", o.MaxNumBatchedTokens, batch, why, "a step may take longer", func(p *schema.Profile) { p.Scheduler.MaxNumBatchedTokens = batch })
	}
	if seqs > o.MaxNumSeqs {
		number("scheduler.maxNumSeqs", o.MaxNumSeqs, seqs, fmt.Sprintf("maxNumSeqs is %d", o.MaxNumSeqs), "each running request gets its tokens later", func(p *schema.Profile) { p.Scheduler.MaxNumSeqs = seqs })
	}
	if longer {
		number("maxModelLen", o.MaxModelLen, length, fmt.Sprintf("maxModelLen is %s", Group(int64(o.MaxModelLen))), "requests may be longer", func(p *schema.Profile) { p.MaxModelLen = schema.Count(length) })
	}
	if limit < a.Images {
		why, cost := fmt.Sprintf("a request has at most %s", numberOf(limit, "image")), "more images a request"
		if !w.in.Model.Source.Build.Vision {
			why, cost = "requests may have no images", "the vision tower is loaded"
		}
		number("multimodal.limits.image", limit, a.Images, why, cost, func(p *schema.Profile) { p.Multimodal.Limits.Image = a.Images })
	}
	if size > most {
		out = append(out, sizeNeed(shape, size, most))
	}
	return out
}

// sizeNeed returns the change to images of up to size tokens.
func sizeNeed(shape models.ImageShape, size, most int) need {
	n := need{"multimodal.image.tokens", fmt.Sprint(most), fmt.Sprint(size), fmt.Sprintf("an image has at most %s tokens", Group(int64(most))), "images take longer",
		func(p *schema.Profile) { p.Multimodal.Image.Tokens = size }}
	if !shape.Budgets {
		token := shape.Side * shape.Side * shape.Square
		n.path, n.old, n.new = "multimodal.image.maxPixels", fmt.Sprint(most*token), fmt.Sprint(size*token)
		n.apply = func(p *schema.Profile) { p.Multimodal.Image.MaxPixels = size * token }
	}
	return n
}

// reasonOf says what is in the way of the images, and what fits as the profile is.
func (w resolved) reasonOf(needs []need, a *Answer, most int) string {
	var list []string
	for _, n := range needs {
		list = append(list, n.why)
	}
	reason := strings.Join(list, "; ")
	m := w.in.Profile.Multimodal
	if m == nil || m.Limits.Image == 0 {
		return reason
	}
	less := a.goal
	less.Images, less.ImageTokens = min(a.Images, m.Limits.Image), min(a.ImageTokens, most)
	w.goal = goal{a.Seqs, a.Tokens}
	if less.Tokens == 0 {
		w.goal.tokens = less.imageTokens()
	}
	if less != a.goal && w.fits() {
		reason += fmt.Sprintf("; as it is, %v would fit", less)
	}
	return reason
}

// withNeeds returns w with the changes, and adds each to a's Needed with the memory that it takes.
func (w resolved) withNeeds(a *Answer, needs []need, tower *engine.Model) (resolved, string) {
	in := w.in
	in.Facts = w.host
	now, err := w.withoutKV()
	if images := (*engine.ImagesError)(nil); err != nil && !errors.As(err, &images) {
		return w, err.Error() // an image larger than a step is among the needs
	}
	v := w
	for _, n := range needs {
		p := *in.Profile
		if strings.HasPrefix(n.path, "multimodal.") {
			m, err := multimodalOf(&p)
			if err != nil {
				return w, err.Error()
			}
			if m.Image == nil {
				m.Image = &schema.MediaImage{}
			}
			in.Model = tower
		}
		n.apply(&p)
		in.Profile = &p
		if v, err = resolve(in); err != nil {
			return w, fmt.Sprintf("%s: %v", n.path, err)
		}
		v.within = w.within
		with, err := v.withoutKV()
		if err != nil {
			return w, fmt.Sprintf("%s: %v", n.path, err)
		}
		a.Needed = append(a.Needed, Change{Path: n.path, Old: n.old, New: n.new, Cost: n.cost + growth(now, with)})
		now = with
	}
	return v, ""
}

// withoutKV returns the ledger without a KV arena.
func (w resolved) withoutKV() (Ledger, error) {
	o := w.options
	if o.KVBytes = 0; o.MaxModelLen == 0 {
		o.MaxModelLen = w.in.Model.Config.MaxPositionEmbeddings
		if !o.ChunkedPrefill {
			o.MaxModelLen = min(o.MaxModelLen, o.MaxNumBatchedTokens)
		}
	}
	a, err := w.account(o)
	if err != nil {
		return nil, err
	}
	return w.withSlabs(o, a, 0), nil
}

// growth returns ": weights +1.07 GiB, scratch +400.0 MiB", the lines of a ledger that grow, "" if none does or
// old is nil.
func growth(old, new Ledger) string {
	if old == nil {
		return ""
	}
	var list []string
	for _, i := range new {
		if more := i.Bytes - old.Bytes(i.Name); more > 0 && i.Basis != Apart {
			s := fmt.Sprintf("%s +%s", i.Name, Size(more))
			if i.Basis == Host {
				s += " of the host"
			}
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}
