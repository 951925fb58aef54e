package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
)

// Serve mirrors #Serve.
type Serve struct {
	Host                string     `json:"host"`
	Port                int        `json:"port"` // 0: any free one
	ServedModelName     []string   `json:"servedModelName"`
	APIKeys             []Key      `json:"apiKeys"`
	GuardMetrics        bool       `json:"guardMetrics"`
	Limits              Limits     `json:"limits"`
	PerKey              PerKey     `json:"perKey"`
	Timeouts            Timeouts   `json:"timeouts"`
	TLS                 *TLS       `json:"tls,omitempty"`
	Responses           *Responses `json:"responses,omitempty"`
	KVEvents            *KVEvents  `json:"kvEvents,omitempty"`
	Idle                *Idle      `json:"idle,omitempty"`
	Sleep               bool       `json:"sleep"`
	Traces              *Traces    `json:"traces,omitempty"`
	DrainTimeout        Duration   `json:"drainTimeout"`
	CORS                CORS       `json:"cors"`
	AllowedHosts        []string   `json:"allowedHosts"`
	AccessLog           bool       `json:"accessLog"`
	LogRequests         bool       `json:"logRequests"`
	Docs                bool       `json:"docs"`
	PromptTokensDetails bool       `json:"promptTokensDetails"`
	ForceIncludeUsage   bool       `json:"forceIncludeUsage"`
	RequestIDHeaders    bool       `json:"requestIdHeaders"`
	MetricsCompat       bool       `json:"metricsCompat"`
	StatsInterval       Duration   `json:"statsInterval"` // 0: none
}

// Limits mirrors #Limits. RequestTimeout 0: none; MaxLogprobs -1: all.
type Limits struct {
	MaxQueue              int      `json:"maxQueue"`
	MaxConcurrentRequests int      `json:"maxConcurrentRequests"`
	MaxBodyBytes          Bytes    `json:"maxBodyBytes"`
	MaxChoices            int      `json:"maxChoices"`
	MaxLogprobs           int      `json:"maxLogprobs"`
	RequestTimeout        Duration `json:"requestTimeout"`
}

// PerKey mirrors #PerKey; 0: no limit.
type PerKey struct {
	MaxConcurrentRequests int   `json:"maxConcurrentRequests"`
	RequestsPerMinute     int   `json:"requestsPerMinute"`
	TokensPerMinute       int64 `json:"tokensPerMinute"`
}

// Timeouts mirrors #Timeouts; 0: none.
type Timeouts struct {
	Header Duration `json:"header"`
	Idle   Duration `json:"idle"`
	Body   Duration `json:"body"`
	Write  Duration `json:"write"`
}

// TLS mirrors #TLS: PEM files.
type TLS struct {
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// Responses mirrors #Responses.
type Responses struct {
	Store    string   `json:"store"` // a file
	MaxAge   Duration `json:"maxAge"`
	MaxBytes Bytes    `json:"maxBytes"`
}

// KVEvents mirrors #KVEvents. ReplayEndpoint "": none.
type KVEvents struct {
	Endpoint       string `json:"endpoint"`
	ReplayEndpoint string `json:"replayEndpoint,omitempty"`
	BufferSteps    int    `json:"bufferSteps"`
	HWM            int    `json:"hwm"`
	Topic          string `json:"topic"`
	HashSeed       string `json:"hashSeed"`
}

// Idle mirrors #Idle. Unload 0: only for another model.
type Idle struct {
	Unload Duration `json:"unload"`
	Load   string   `json:"load"` // OnStart or OnRequest
}

// Values of Idle.Load.
const (
	OnStart   = "start"
	OnRequest = "onRequest"
)

// Traces mirrors #Traces. What is "" or nil is taken from variables.
type Traces struct {
	Endpoint    string   `json:"endpoint,omitempty"`
	Protocol    string   `json:"protocol,omitempty"`
	Sampling    *float64 `json:"sampling,omitempty"`
	ServiceName string   `json:"serviceName,omitempty"`
}

// CORS mirrors #Cors.
type CORS struct {
	AllowedOrigins   []string `json:"allowedOrigins"`
	AllowedMethods   []string `json:"allowedMethods"`
	AllowedHeaders   []string `json:"allowedHeaders"`
	AllowCredentials bool     `json:"allowCredentials"`
}

// Key mirrors #Key: exactly one of File (one key per line), Env (name of a variable)
// and the clear text is set. Printing or marshalling a Key never shows the clear text;
// only Secret returns it.
type Key struct {
	File string
	Env  string

	secret string
}

// hidden is printed in place of a clear-text key.
const hidden = "(hidden)"

// Secret returns the key in clear text, "" for a key in a file or a variable.
func (k Key) Secret() string { return k.secret }

// String returns the location of the key, never the key itself.
func (k Key) String() string {
	switch {
	case k.File != "":
		return "file " + k.File
	case k.Env != "":
		return "env " + k.Env
	}
	return hidden
}

// GoString returns String, so that %#v also hides the key.
func (k Key) GoString() string { return k.String() }

// LogValue returns String, for log/slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalJSON writes {"file": …}, {"env": …} or "(hidden)".
func (k Key) MarshalJSON() ([]byte, error) {
	switch {
	case k.File != "":
		return json.Marshal(map[string]string{"file": k.File})
	case k.Env != "":
		return json.Marshal(map[string]string{"env": k.Env})
	}
	return json.Marshal(hidden)
}

// UnmarshalJSON accepts the forms of #Key.
func (k *Key) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &k.secret)
	}
	var ref struct {
		File string `json:"file"`
		Env  string `json:"env"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&ref); err != nil {
		return err
	}
	if (ref.File == "") == (ref.Env == "") {
		return errors.New("a key has either file or env")
	}
	k.File, k.Env = ref.File, ref.Env
	return nil
}
