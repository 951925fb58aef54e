package metrics

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// encoder writes what the registry has as text. Gateways scrape every 50 ms, so it does again only what has changed
// since the scrape before: names and labels are rendered once, a collector whose version is the same is not asked, and
// families without a change are not written anew. Its output is that of promhttp, with the bounds of appendBound; a
// test compares them.
type encoder struct {
	registry *registry
	first    string        // label model_name of the registry's series
	newest   func() string // the one to write
	metrics  chan prometheus.Metric

	mu       sync.Mutex
	model    string    // that is rendered
	sources  []*source // in the registry's order
	alone    []*source // those of whose changes the registry does not know
	version  uint64    // of the registry when all sources were asked
	ofDesc   map[*prometheus.Desc]*family
	families []*family // sorted by name
	moved    bool      // series came or went since the families' lists were made
	changes  uint64    // of the lines of any series
	replies  [2]*reply // the newest of each format
	scrape   uint64
	next     []*oneSeries // reused, as are the following two
	key      []byte
	data     *dto.Metric
}

// The indices of the formats.
const (
	textFormat = iota
	openFormat
)

// source is a collector and what it collected last.
type source struct {
	prometheus.Collector
	single    prometheus.Metric // the collector, if it is a metric too
	versioned versioned         // the collector; nil: it has no version
	asked     bool
	version   uint64 // when it was asked
	series    []*oneSeries
}

// family is the metrics of one name.
type family struct {
	name  string
	head  [2][]byte             // HELP and TYPE
	now   []*oneSeries          // sorted by the values of their labels
	known map[string]*oneSeries // by these values
	stale [2]bool               // lines is older than a change
	lines [2][]byte             // the head, and the lines of all series
}

// oneSeries is a metric with its lines up to the values.
type oneSeries struct {
	metric  prometheus.Metric
	family  *family
	key     string      // of family.known
	labels  []string    // values
	begin   [2][][]byte // what comes before the values, for each line
	data    *dto.Metric
	version uint64 // of a versioned metric's data
	scrape  uint64 // the last one that asked for it
	changes uint64 // of data, from 1
	kept    [2]kept
}

// kept is the lines of a series in one format.
type kept struct {
	changes uint64 // of the series when they were written; 0: they were not
	lines   []byte
}

// reply is the text of a whole reply. It does not change while it is in use.
type reply struct {
	text    []byte
	changes uint64 // of the encoder when it was written
	users   int
}

// channelSize is more than the series of one collector here can be: those of HTTP have the most, a few
// hundred, since routes, methods and classes of status are bounded.
const channelSize = 4096

func newEncoder(m *Metrics) *encoder {
	e := &encoder{registry: m.registry, first: m.cfg.Model, newest: func() string { return *m.model.Load() }, data: &dto.Metric{}}
	e.metrics = make(chan prometheus.Metric, channelSize)
	e.reset(m.cfg.Model)
	return e
}

// reset forgets all series. Those of the next scrape have that model_name.
func (e *encoder) reset(model string) {
	e.model, e.sources, e.alone, e.version = model, nil, nil, unversioned
	e.families, e.ofDesc, e.moved = nil, map[*prometheus.Desc]*family{}, true
}

// errForeign is a metric that only promhttp can write.
var errForeign = errors.New("a metric of another form")

// encode returns all metrics in a format, for the caller until release. After an error the caller lets promhttp answer.
func (e *encoder) encode(format int) (*reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if name := e.newest(); name != e.model {
		e.reset(name)
	}
	if err := e.collect(); err != nil {
		e.reset(e.model)
		return nil, err
	}
	if e.moved {
		e.sort()
	}
	b := e.replies[format]
	if b == nil || b.changes != e.changes {
		if b == nil || b.users > 0 {
			b = &reply{}
			e.replies[format] = b
		}
		e.write(b, format)
		b.changes = e.changes
	}
	b.users++
	return b, nil
}

// release ends the use of a reply.
func (e *encoder) release(b *reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.users--
}

// collect asks the collectors that may have changed.
func (e *encoder) collect() error {
	e.scrape++
	version := e.registry.version() // before they are asked
	list := e.alone
	if version != e.version {
		e.extend()
		list = e.sources
	}
	for _, s := range list {
		if s.versioned != nil {
			now := s.versioned.version() // before the collector is asked
			if s.asked && s.version == now {
				continue
			}
			s.asked, s.version = true, now
		}
		if err := e.ask(s); err != nil {
			return err
		}
	}
	e.version = version
	return nil
}

// extend adds the collectors that were registered since.
func (e *encoder) extend() {
	for _, c := range e.registry.all()[len(e.sources):] {
		s := &source{Collector: c}
		s.single, _ = c.(prometheus.Metric)
		s.versioned, _ = c.(versioned)
		e.sources = append(e.sources, s)
		if t, is := c.(versionedTogether); !is || !t.countedIn(&e.registry.changes) {
			e.alone = append(e.alone, s)
		}
	}
}

// ask reads the metrics of a collector. It starts no goroutine, whose wake-ups would be most of the time of a scrape
// of an idle server.
func (e *encoder) ask(s *source) (failed error) {
	e.next = e.next[:0]
	if s.single != nil {
		failed = e.read(s, s.single)
	} else {
		s.Collect(e.metrics)
		for range len(e.metrics) {
			failed = cmp.Or(failed, e.read(s, <-e.metrics))
		}
	}
	if failed != nil {
		return failed
	}
	for _, was := range s.series {
		if was.scrape != e.scrape {
			e.moved = true
			if was.family.known[was.key] == was {
				delete(was.family.known, was.key)
			}
		}
	}
	s.series = append(s.series[:0], e.next...)
	return nil
}

// read reads a metric, and appends its series to e.next.
func (e *encoder) read(from *source, m prometheus.Metric) error {
	var s *oneSeries
	if i := len(e.next); i < len(from.series) && from.series[i].metric == m {
		s = from.series[i]
	}
	version := uint64(unversioned)
	if v, is := m.(versioned); is {
		version = v.version() // before the metric is read
	}
	switch {
	case s != nil && s.version == version && version != unversioned:
	case s != nil:
		if err := m.Write(s.data); err != nil {
			return err
		}
		e.changed(s)
	default:
		var err error
		if s, err = e.found(m); err != nil {
			return err
		}
	}
	s.version, s.scrape = version, e.scrape
	e.next = append(e.next, s)
	return nil
}

// found reads a metric that was not at this place in the scrape before, and returns its series: a metric that is made
// anew for each change has the series of the one before.
func (e *encoder) found(m prometheus.Metric) (*oneSeries, error) {
	e.data.Reset()
	if err := m.Write(e.data); err != nil {
		return nil, err
	}
	if e.model != e.first {
		renameModel(e.data, e.model)
	}
	f, err := e.familyOf(m.Desc(), e.data)
	if err != nil {
		return nil, err
	}
	e.key = e.key[:0]
	for _, l := range e.data.Label {
		e.key = append(strconv.AppendInt(e.key, int64(len(l.GetValue())), 10), ' ')
		e.key = append(e.key, l.GetValue()...)
	}
	s := f.known[string(e.key)]
	if s != nil && s.scrape != e.scrape && lines(s.data) == lines(e.data) {
		s.metric, s.data, e.data = m, e.data, s.data
		e.changed(s)
		return s, nil
	}
	s = &oneSeries{metric: m, family: f, key: string(e.key), data: e.data}
	e.data, e.moved = &dto.Metric{}, true
	for _, l := range s.data.Label {
		s.labels = append(s.labels, l.GetValue())
	}
	s.begin = [2][][]byte{s.rendered(false), s.rendered(true)}
	f.known[s.key] = s
	e.changed(s)
	return s, nil
}

// changed counts a change of a series' data.
func (e *encoder) changed(s *oneSeries) {
	s.changes++
	e.changes++
	s.family.stale = [2]bool{true, true}
}

// sort makes the lists of the families' series.
func (e *encoder) sort() {
	for _, f := range e.families {
		f.now, f.stale = f.now[:0], [2]bool{true, true}
	}
	for _, from := range e.sources {
		for _, s := range from.series {
			s.family.now = append(s.family.now, s)
		}
	}
	for _, f := range e.families {
		slices.SortFunc(f.now, func(a, b *oneSeries) int { return slices.Compare(a.labels, b.labels) })
	}
	e.moved = false
	e.changes++
	for i, b := range e.replies {
		if b != nil && b.users == 0 {
			b.text = b.text[:0]
		} else {
			e.replies[i] = nil
		}
	}
}

// write makes b, which is empty or the newest reply in this format, a reply of the present lines. Families of the same
// length as before are replaced in place.
func (e *encoder) write(b *reply, format int) {
	at, inPlace := 0, len(b.text) > 0
	for _, f := range e.families {
		if len(f.now) == 0 {
			continue
		}
		length, stale := len(f.lines[format]), f.stale[format]
		if stale {
			f.stale[format] = false
			f.lines[format] = append(f.lines[format][:0], f.head[format]...)
			for _, s := range f.now {
				f.lines[format] = s.lines(f.lines[format], format)
			}
		}
		lines := f.lines[format]
		if inPlace = inPlace && len(lines) == length; !inPlace {
			b.text = append(b.text[:at], lines...)
		} else if stale {
			copy(b.text[at:], lines)
		}
		at += len(lines)
	}
	if !inPlace && format == openFormat {
		b.text = append(b.text[:at], "# EOF\n"...)
	}
}

// kindOf returns the type of a metric; false for one that is none of these four, or has a timestamp.
func kindOf(d *dto.Metric) (dto.MetricType, bool) {
	switch {
	case d.TimestampMs != nil:
		return 0, false
	case d.Counter != nil:
		return dto.MetricType_COUNTER, true
	case d.Gauge != nil:
		return dto.MetricType_GAUGE, true
	case d.Summary != nil:
		return dto.MetricType_SUMMARY, true
	case d.Histogram != nil:
		return dto.MetricType_HISTOGRAM, d.Histogram.Schema == nil && d.Histogram.SampleCountFloat == nil
	}
	return 0, false
}

// lines returns how many lines a metric has. The last bucket is in the data only with an exemplar.
func lines(d *dto.Metric) int {
	switch {
	case d.Summary != nil:
		return len(d.Summary.Quantile) + 2
	case d.Histogram != nil:
		n := len(d.Histogram.Bucket)
		if n > 0 && math.IsInf(d.Histogram.Bucket[n-1].GetUpperBound(), 1) {
			n--
		}
		return n + 3
	}
	return 1
}

// rendered returns the beginnings of the lines in one of the formats.
func (s *oneSeries) rendered(open bool) (out [][]byte) {
	var labels []byte
	for _, l := range s.data.Label {
		labels = append(appendEscaped(append(append(labels, l.GetName()...), `="`...), l.GetValue(), true), `",`...)
	}
	line := func(suffix string, more []byte) {
		p := append([]byte(s.family.name), suffix...)
		if all := slices.Concat(labels, more); len(all) > 0 {
			p = append(append(append(p, '{'), all[:len(all)-1]...), '}')
		}
		out = append(out, append(p, ' '))
	}
	bucket := func(bound float64) {
		line("_bucket", append(appendBound([]byte(`le="`), appendFloat(nil, bound, open)), `",`...))
	}
	switch d := s.data; {
	case d.Summary != nil:
		for _, q := range d.Summary.Quantile {
			line("", append(appendFloat([]byte(`quantile="`), q.GetQuantile(), open), `",`...))
		}
	case d.Histogram != nil:
		for _, b := range d.Histogram.Bucket {
			if !math.IsInf(b.GetUpperBound(), 1) {
				bucket(b.GetUpperBound())
			}
		}
		bucket(math.Inf(1))
	default:
		line("", nil)
		return out
	}
	line("_sum", nil)
	line("_count", nil)
	return out
}

// familyOf returns the family of a metric, which has that description.
func (e *encoder) familyOf(d *prometheus.Desc, data *dto.Metric) (*family, error) {
	kind, ok := kindOf(data)
	if !ok {
		return nil, errForeign
	}
	if f := e.ofDesc[d]; f != nil {
		return f, nil
	}
	name, help, unit, err := described(d)
	if err != nil {
		return nil, err
	}
	at, found := slices.BinarySearchFunc(e.families, name, func(f *family, name string) int { return strings.Compare(f.name, name) })
	if !found {
		e.families = slices.Insert(e.families, at, newFamily(name, help, unit, kind))
	}
	e.ofDesc[d] = e.families[at]
	return e.families[at], nil
}

// described returns the name, the help and the unit of a description, which has them only in its text.
func described(d *prometheus.Desc) (name, help, unit string, err error) {
	text := d.String()
	for _, part := range []struct {
		before string
		value  *string
	}{{"Desc{fqName: ", &name}, {", help: ", &help}, {", unit: ", &unit}} {
		rest, ok := strings.CutPrefix(text, part.before)
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil {
			return "", "", "", errForeign
		}
		if *part.value, err = strconv.Unquote(quoted); err != nil {
			return "", "", "", err
		}
		text = rest[len(quoted):]
	}
	return name, help, unit, nil
}

// newFamily returns a family with its HELP and TYPE. In OpenMetrics a counter's name is without _total,
// and one without it is no counter; units have a line too.
func newFamily(name, help, unit string, kind dto.MetricType) *family {
	f := &family{name: name, known: map[string]*oneSeries{}}
	head := func(name, kind string, quotes bool) []byte {
		out := appendEscaped([]byte("# HELP "+name+" "), help, quotes)
		return append(out, "\n# TYPE "+name+" "+kind+"\n"...)
	}
	word := strings.ToLower(kind.String())
	f.head[textFormat] = head(name, word, false)
	if base, total := strings.CutSuffix(name, "_total"); kind == dto.MetricType_COUNTER && total {
		name = base
	} else if kind == dto.MetricType_COUNTER {
		word = "unknown"
	}
	f.head[openFormat] = head(name, word, true)
	if unit != "" {
		f.head[openFormat] = append(appendEscaped(append(f.head[openFormat], "# UNIT "+name+" "...), unit, true), '\n')
	}
	return f
}
