package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vapp.dev/tools/bench/report"
	"vapp.dev/tools/bench/workload"
)

// Options are the command-line options, with vLLM's names.
type Options struct {
	Backend, BaseURL, Host, Endpoint     string
	Port                                 int
	Model, ServedModelName, Tokenizer    string
	Dataset                              Dataset
	NumPrompts                           int
	Seed                                 int64
	Arrivals                             workload.Arrivals
	MaxConcurrency, NumWarmups, Logprobs int
	ReadyTimeoutSec, RequestTimeoutSec   int
	IgnoreEOS                            bool
	Metrics, Percentiles, ExtraBody      string
	Goodput, Header, Metadata            []string
	Sampling                             []Option
	Label, RequestIDPrefix               string
	Insecure, Detailed, Profile          bool
	// Key is sent as a bearer token; "": none.
	Key string
}

// OptionError is an invalid option.
type OptionError struct{ Err error }

func (e *OptionError) Error() string { return e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

func refuse(format string, args ...any) error {
	return &OptionError{fmt.Errorf(format, args...)}
}

// checked are the parsed options that need no server.
type checked struct {
	backend Backend
	server  *Server
	params  RequestParams
	setup   report.Setup
}

// check parses the options. Its error is an *OptionError.
func (o *Options) check() (checked, error) {
	form, endpoint, err := FindBackend(o.Backend)
	if err != nil {
		return checked{}, refuse("--%v", err)
	}
	if o.Endpoint != "" {
		endpoint = "/" + strings.TrimPrefix(o.Endpoint, "/")
	}
	base, err := o.base()
	if err != nil {
		return checked{}, err
	}
	c := checked{backend: form, server: &Server{BaseURL: base, Endpoint: endpoint, Key: o.Key, Client: Client(o.Insecure)}}
	if c.server.Header, err = o.headers(); err != nil {
		return c, err
	}
	if c.params, err = o.params(form); err != nil {
		return c, err
	}
	if c.setup, err = o.setup(form); err != nil {
		return c, err
	}
	for _, n := range []struct {
		name         string
		value, least int
	}{
		{"num-prompts", o.NumPrompts, 1}, {"max-concurrency", o.MaxConcurrency, 0}, {"num-warmups", o.NumWarmups, 0},
		{"ready-check-timeout-sec", o.ReadyTimeoutSec, 0}, {"request-timeout-sec", o.RequestTimeoutSec, 1}, {"logprobs", o.Logprobs, 0},
	} {
		if n.value < n.least {
			return c, refuse("--%s %d: give %d or more", n.name, n.value, n.least)
		}
	}
	if err := o.Arrivals.Check(); err != nil {
		return c, &OptionError{err}
	}
	if err := o.checkOpenFiles(openFiles()); err != nil {
		return c, err
	}
	if o.Dataset.Name == "random-mm" && form != Chat {
		return c, refuse("--dataset-name random-mm: only --backend openai-chat sends images, %s does not", o.Backend)
	}
	return c, o.Dataset.check()
}

// ownFiles is the number of open files besides connections.
const ownFiles = 32

// checkOpenFiles checks that the process may open a connection for each concurrent request. most is
// the limit of open files. At a finite request rate the concurrency is unknown, so nothing is
// checked.
func (o *Options) checkOpenFiles(most int) error {
	n := o.NumPrompts
	if o.MaxConcurrency > 0 {
		n = min(n, o.MaxConcurrency)
	} else if !math.IsInf(o.Arrivals.Rate, 1) || o.Arrivals.RampUp != "" {
		return nil
	}
	if n+ownFiles > most {
		return refuse("%d concurrent requests need a connection each, and this process may open %d files; raise that (ulimit -n %d), or give --max-concurrency %d",
			n, most, n+ownFiles, max(1, most-ownFiles))
	}
	return nil
}

// base returns the server's base URL.
func (o *Options) base() (string, error) {
	base := o.BaseURL
	if base == "" {
		if o.Port < 1 || o.Port > 65535 {
			return "", refuse("--port %d: give 1 to 65535", o.Port)
		}
		base = "http://" + net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", refuse("--base-url %q: give one such as http://127.0.0.1:8000", base)
	}
	return strings.TrimRight(base, "/"), nil
}

func (o *Options) params(form Backend) (RequestParams, error) {
	a := RequestParams{Backend: form, IgnoreEOS: o.IgnoreEOS, Logprobs: o.Logprobs, Sampling: o.Sampling, IDPrefix: o.RequestIDPrefix}
	if a.IDPrefix == "" {
		var b [4]byte
		rand.Read(b[:]) // never returns an error
		a.IDPrefix = "bench-" + hex.EncodeToString(b[:]) + "-"
	}
	if o.ExtraBody != "" {
		if err := json.Unmarshal([]byte(o.ExtraBody), &a.Extra); err != nil || a.Extra == nil {
			return a, refuse("--extra-body %q: give a JSON object", o.ExtraBody)
		}
	}
	return a, nil
}

// headers returns the headers that the user set.
func (o *Options) headers() (http.Header, error) {
	out := http.Header{}
	for _, h := range o.Header {
		key, value, ok := strings.Cut(h, "=")
		if !ok || key == "" || strings.ContainsAny(h, "\r\n\x00") || strings.ContainsAny(key, " \t:") {
			return nil, refuse("--header %q: give NAME=VALUE", h)
		}
		out.Add(key, value)
	}
	return out, nil
}

// setup returns the part of the result that is known before the run.
func (o *Options) setup(form Backend) (report.Setup, error) {
	s := report.Setup{
		Backend: o.Backend, Label: o.Label, NumPrompts: o.NumPrompts, Rate: o.Arrivals.Rate, Burstiness: o.Arrivals.Burstiness,
		MaxConcurrency: o.MaxConcurrency, RampUp: o.Arrivals.RampUp, RampStart: o.Arrivals.Start, RampEnd: o.Arrivals.End,
		Pooling: form == Embeddings,
	}
	var err error
	if s.Metrics, err = o.metrics(form); err != nil {
		return s, err
	}
	if s.Percentiles, err = percentiles(o.Percentiles); err != nil {
		return s, err
	}
	if s.Goodput, err = goodput(o.Goodput, form); err != nil {
		return s, err
	}
	for _, m := range o.Metadata {
		key, value, ok := strings.Cut(m, "=")
		if !ok || key == "" {
			return s, refuse("--metadata %q: give KEY=VALUE", m)
		}
		s.Metadata = append(s.Metadata, [2]string{key, value})
	}
	return s, nil
}

func (o *Options) metrics(form Backend) ([]string, error) {
	if form == Embeddings {
		return []string{report.E2EL}, nil
	}
	out := strings.Split(o.Metrics, ",")
	for i, m := range out {
		out[i] = strings.TrimSpace(m)
		if !slices.Contains([]string{report.TTFT, report.TPOT, report.ITL, report.E2EL}, out[i]) {
			return nil, refuse("--percentile-metrics %q: there are ttft, tpot, itl and e2el", m)
		}
	}
	return out, nil
}

// TimelineThresholds parses the value of --timeline-itl-thresholds.
func TimelineThresholds(list string) (report.Thresholds, error) {
	var out report.Thresholds
	words := strings.Split(list, ",")
	for i := range out {
		x, err := 0.0, error(nil)
		if len(words) == len(out) {
			x, err = strconv.ParseFloat(strings.TrimSpace(words[i]), 64)
		}
		if out[i] = x; err != nil || !(x > 0) || i > 0 && !(x > out[0]) {
			return out, refuse("--timeline-itl-thresholds %q: give two numbers of milliseconds, ascending, such as 25,50", list)
		}
	}
	return out, nil
}

func percentiles(list string) ([]float64, error) {
	var out []float64
	for _, w := range strings.Split(list, ",") {
		p, err := strconv.ParseFloat(strings.TrimSpace(w), 64)
		if err != nil || !(p >= 0 && p <= 100) {
			return nil, refuse("--metric-percentiles %q: give numbers from 0 to 100, such as 50,99,99.9", w)
		}
		out = append(out, p)
	}
	return out, nil
}

func goodput(pairs []string, form Backend) (report.Goodput, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := report.Goodput{}
	for _, pair := range pairs {
		for _, w := range strings.FieldsFunc(pair, func(r rune) bool { return r == ' ' || r == ',' }) {
			name, value, _ := strings.Cut(w, ":")
			ms, err := strconv.ParseFloat(value, 64)
			known := name == report.E2EL || form != Embeddings && (name == report.TTFT || name == report.TPOT)
			if err != nil || !known || !(ms >= 0) {
				return nil, refuse("--goodput %q: give pairs of a metric (ttft, tpot or e2el) and milliseconds, such as ttft:500", w)
			}
			out[name] = ms
		}
	}
	return out, nil
}

// Open checks the options, asks the server for missing ones, and makes the workload.
func (o *Options) Open(ctx context.Context, log io.Writer) (*Run, error) {
	c, err := o.check()
	if err != nil {
		return nil, err
	}
	ready := time.Duration(o.ReadyTimeoutSec) * time.Second
	if o.Model == "" && o.ServedModelName == "" {
		if o.Model, err = c.server.FirstModel(ctx, ready); err != nil {
			return nil, err
		}
		fmt.Fprintln(log, "Using model:", clip(o.Model))
	}
	c.setup.Model, c.params.Model = o.Model, o.ServedModelName
	if o.ServedModelName == "" {
		c.params.Model = o.Model
	} else if o.Model == "" {
		c.setup.Model = o.ServedModelName
	}
	tok, err := o.tokenizer(ctx, &c, ready)
	if err != nil {
		return nil, err
	}
	requests, err := o.Dataset.Make(ctx, workload.Maker{Count: o.NumPrompts, Seed: o.Seed, Tokenizer: tok})
	if err != nil {
		return nil, err
	}
	c.setup.NumPrompts = len(requests)
	c.setup.Date = time.Now().Format("20060102-150405")
	return &Run{
		Server: c.server, Params: c.params, Requests: requests, Arrivals: o.Arrivals, Seed: o.Seed,
		MaxConcurrency: o.MaxConcurrency, Warmups: o.NumWarmups, ReadyTimeout: ready,
		Timeout: time.Duration(o.RequestTimeoutSec) * time.Second, Tokenizer: tok, KeepText: o.Detailed, Profile: o.Profile, Setup: c.setup, Log: log,
	}, nil
}

// tokenizer returns the tokenizer of the options, else that of the model where that is a path, else
// the server's.
func (o *Options) tokenizer(ctx context.Context, c *checked, patience time.Duration) (workload.Tokenizer, error) {
	path := o.Tokenizer
	if path == "" {
		if _, err := tokenizerJSON(o.Model); o.Model != "" && err == nil {
			path = o.Model
		}
	}
	c.setup.Tokenizer = path
	if path != "" {
		t, err := OpenTokenizer(path)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	c.setup.Tokenizer = c.setup.Model
	t, err := RemoteTokenizer(ctx, c.server, c.params.Model, patience)
	if err != nil {
		return nil, err
	}
	return t, nil
}
