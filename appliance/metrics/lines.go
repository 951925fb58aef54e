package metrics

import (
	"bytes"
	"math"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// lines appends the lines of a series. If its family has others, which may change without it, its own lines are kept.
func (s *oneSeries) lines(out []byte, format int) []byte {
	if len(s.family.now) == 1 {
		return s.append(out, format)
	}
	k := &s.kept[format]
	if k.changes != s.changes {
		k.changes, k.lines = s.changes, s.append(k.lines[:0], format)
	}
	return append(out, k.lines...)
}

// append appends the lines of a series, written anew.
func (s *oneSeries) append(out []byte, format int) []byte {
	begin, open := s.begin[format], format == openFormat
	number := func(v float64) {
		out = append(appendFloat(append(out, begin[0]...), v, open), '\n')
		begin = begin[1:]
	}
	count := func(n uint64, x *dto.Exemplar) {
		out = append(out, begin[0]...)
		begin = begin[1:]
		if !open {
			out = append(appendFloat(out, float64(n), false), '\n')
			return
		}
		out = append(appendExemplar(strconv.AppendUint(out, n, 10), x), '\n')
	}
	switch d := s.data; {
	case d.Counter != nil:
		number(d.Counter.GetValue())
	case d.Gauge != nil:
		number(d.Gauge.GetValue())
	case d.Summary != nil:
		for _, q := range d.Summary.Quantile {
			number(q.GetValue())
		}
		number(d.Summary.GetSampleSum())
		count(d.Summary.GetSampleCount(), nil)
	case d.Histogram != nil:
		h := d.Histogram
		for _, b := range h.Bucket {
			count(b.GetCumulativeCount(), b.Exemplar)
		}
		if n := len(h.Bucket); n == 0 || !math.IsInf(h.Bucket[n-1].GetUpperBound(), 1) {
			count(h.GetSampleCount(), nil)
		}
		number(h.GetSampleSum())
		count(h.GetSampleCount(), nil)
	}
	return out
}

// appendExemplar appends an exemplar, if there is one.
func appendExemplar(out []byte, x *dto.Exemplar) []byte {
	if x == nil || len(x.Label) == 0 {
		return out
	}
	between := " # {"
	for _, l := range x.Label {
		out = append(append(append(out, between...), l.GetName()...), `="`...)
		out = append(appendEscaped(out, l.GetValue(), true), '"')
		between = ","
	}
	out = appendFloat(append(out, "} "...), x.GetValue(), true)
	if x.Timestamp != nil {
		out = appendFloat(append(out, ' '), float64(x.Timestamp.AsTime().UnixNano())/1e9, true)
	}
	return out
}

// appendFloat appends a number as Prometheus' formats write it: in OpenMetrics every number has a point
// or an exponent.
func appendFloat(out []byte, v float64, open bool) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(out, "+Inf"...)
	case math.IsInf(v, -1):
		return append(out, "-Inf"...)
	case math.IsNaN(v):
		return append(out, "NaN"...)
	case v == math.Trunc(v) && math.Abs(v) < 1e6: // without exponent in AppendFloat too; -0 is 0
		out = strconv.AppendInt(out, int64(v), 10)
	default:
		from := len(out)
		out = strconv.AppendFloat(out, v, 'g', -1, 64)
		if bytes.ContainsAny(out[from:], "e.") {
			return out
		}
	}
	if open {
		out = append(out, ".0"...)
	}
	return out
}

// appendEscaped appends a text with backslashes and line ends escaped, and with quotes if it is between
// some or for OpenMetrics.
func appendEscaped(out []byte, text string, quotes bool) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\\', c == '"' && quotes:
			out = append(out, '\\', c)
		default:
			out = append(out, c)
		}
	}
	return out
}
