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

// encoder writes what the registry has as text. Names and labels of a metric are rendered once and
// kept, since they do not change: gateways scrape every 50 ms. Its output is that of promhttp, with the
// bounds of appendBound; a test compares them.
type encoder struct {
	registry *registry
	first    string        // label model_name of the registry's series
	newest   func() string // the one to write

	mu       sync.Mutex
	model    string // that is rendered
	ofDesc   map[*prometheus.Desc]*family
	families []*family // sorted by name
	series   map[prometheus.Metric]*oneSeries
	scrape   uint64
	key      []byte // reused
}

// family is the metrics of one name.
type family struct {
	name       string
	text, open []byte                // HELP and TYPE, in the text format and in OpenMetrics
	now        []*oneSeries          // of the current scrape
	known      map[string]*oneSeries // by their labels' values
}

// oneSeries is a metric with its lines up to the values.
type oneSeries struct {
	family     *family
	key        string   // of family.known
	labels     []string // values
	text, open [][]byte // what comes before the values, for each line
	data       dto.Metric
	scrape     uint64 // the last one that had it
	versioned  bool
	version    uint64 // of data
	kept       [2]kept
}

// kept is the lines of a versioned metric, in one format.
type kept struct {
	version uint64
	lines   []byte // nil: not written yet
}

func newEncoder(m *Metrics) *encoder {
	return &encoder{registry: m.registry, first: m.cfg.Model, model: m.cfg.Model, newest: func() string { return *m.model.Load() }, ofDesc: map[*prometheus.Desc]*family{}, series: map[prometheus.Metric]*oneSeries{}}
}

// errForeign is a metric that only promhttp can write.
var errForeign = errors.New("a metric of another form")

// encode appends all metrics to out, in OpenMetrics or in the text format. After an error the caller
// lets promhttp answer.
func (e *encoder) encode(out []byte, open bool) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.scrape++
	if name := e.newest(); name != e.model { // all lines are rendered anew
		e.model = name
		clear(e.series)
		for _, f := range e.families {
			clear(f.known)
		}
	}
	for _, f := range e.families {
		f.now = f.now[:0]
	}
	var failed error
	seen := 0
	e.registry.collect(func(m prometheus.Metric) {
		seen++
		failed = cmp.Or(failed, e.add(m))
	})
	if seen != len(e.series) { // a metric that is made anew for each scrape
		for m, s := range e.series {
			if s.scrape != e.scrape {
				e.forget(m, s)
			}
		}
	}
	if failed != nil {
		return out, failed
	}
	for _, f := range e.families {
		if len(f.now) == 0 {
			continue
		}
		if len(f.now) > 1 {
			slices.SortFunc(f.now, func(a, b *oneSeries) int { return slices.Compare(a.labels, b.labels) })
		}
		if open {
			out = append(out, f.open...)
		} else {
			out = append(out, f.text...)
		}
		for _, s := range f.now {
			out = s.lines(out, open)
		}
	}
	if open {
		out = append(out, "# EOF\n"...)
	}
	return out, nil
}

// add reads a metric.
func (e *encoder) add(m prometheus.Metric) error {
	s := e.series[m]
	if s == nil {
		s = &oneSeries{}
		e.series[m] = s
	}
	s.scrape = e.scrape
	if v, ok := m.(versioned); ok {
		now := v.now() // before the metric is read
		if s.family != nil && s.version == now {
			s.family.now = append(s.family.now, s)
			return nil
		}
		s.versioned, s.version = true, now
	}
	if err := m.Write(&s.data); err != nil {
		return err
	}
	if s.family == nil {
		if e.model != e.first {
			renameModel(&s.data, e.model)
		}
		if err := e.render(s, m.Desc()); err != nil {
			s.family = nil
			return err
		}
	}
	s.family.now = append(s.family.now, s)
	return nil
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

// render finds a metric's family and renders the names and labels of its lines.
func (e *encoder) render(s *oneSeries, d *prometheus.Desc) error {
	kind, ok := kindOf(&s.data)
	if !ok {
		return errForeign
	}
	f, err := e.familyOf(d, kind)
	if err != nil {
		return err
	}
	s.family = f
	e.key = e.key[:0]
	for _, l := range s.data.Label {
		e.key = append(strconv.AppendInt(e.key, int64(len(l.GetValue())), 10), ' ')
		e.key = append(e.key, l.GetValue()...)
	}
	// A metric that is made anew for each scrape has the lines of the one before.
	if k := f.known[string(e.key)]; k != nil && lines(&k.data) == lines(&s.data) {
		s.key, s.labels, s.text, s.open = k.key, k.labels, k.text, k.open
	} else {
		s.key, s.labels = string(e.key), nil
		for _, l := range s.data.Label {
			s.labels = append(s.labels, l.GetValue())
		}
		s.text, s.open = s.rendered(false), s.rendered(true)
	}
	f.known[s.key] = s
	return nil
}

// forget removes a metric that is gone.
func (e *encoder) forget(m prometheus.Metric, s *oneSeries) {
	delete(e.series, m)
	if f := s.family; f != nil && f.known[s.key] == s {
		delete(f.known, s.key)
	}
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
	switch d := &s.data; {
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

// familyOf returns the family of a description.
func (e *encoder) familyOf(d *prometheus.Desc, kind dto.MetricType) (*family, error) {
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
	f.text = head(name, word, false)
	if base, total := strings.CutSuffix(name, "_total"); kind == dto.MetricType_COUNTER && total {
		name = base
	} else if kind == dto.MetricType_COUNTER {
		word = "unknown"
	}
	if f.open = head(name, word, true); unit != "" {
		f.open = append(appendEscaped(append(f.open, "# UNIT "+name+" "...), unit, true), '\n')
	}
	return f
}
