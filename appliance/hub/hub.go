// Package hub downloads models from the Hugging Face hub into Hugging Face's cache and finds models
// that are cached. It uses the layout, environment variables and locks of huggingface_hub, so both
// can use the same cache:
//
//	CACHE/models--ORG--NAME/refs/REVISION           the commit of a branch or tag
//	CACHE/models--ORG--NAME/snapshots/COMMIT/FILE   a link to its blob
//	CACHE/models--ORG--NAME/blobs/ETAG              SHA-256, or git's SHA-1 of a small file
//	CACHE/.locks/models--ORG--NAME/ETAG.lock        held while that blob is fetched
//
// It must not trust a hub: names stay below the cache, sizes and hashes are checked, answers are
// bounded, and the token is sent to the endpoint only. It does not know profiles or plans. Start
// reading at Client.Open in pull.go and Client.fetch in fetch.go.
package hub

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultEndpoint is used where HF_ENDPOINT is not set.
const DefaultEndpoint = "https://huggingface.co"

// Settings are the addresses of the hub and its cache. FromEnv reads them as huggingface_hub does.
type Settings struct {
	Cache    string // folder; "": no cache
	Endpoint string
	Token    string // "": anonymous
	Offline  bool   // HF_HUB_OFFLINE: nothing is downloaded
	// Stall is the time without a byte after which a request is sent again.
	Stall time.Duration
}

// defaultStall is longer than a busy hub needs to answer.
const defaultStall = 30 * time.Second

// FromEnv reads HF_HUB_CACHE, HF_HOME, HF_ENDPOINT, HF_TOKEN or the token file,
// HF_HUB_OFFLINE and HF_HUB_DOWNLOAD_TIMEOUT. getenv is os.Getenv.
func FromEnv(getenv func(string) string) Settings {
	expand := func(path string) string {
		if path = os.Expand(path, getenv); path == "~" || strings.HasPrefix(path, "~/") {
			path = filepath.Join(getenv("HOME"), path[1:])
		}
		return path
	}
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return v
			}
		}
		return ""
	}
	home := expand(first("HF_HOME"))
	if home == "" {
		if base := first("XDG_CACHE_HOME"); base != "" {
			home = filepath.Join(expand(base), "huggingface")
		} else if dir, err := os.UserHomeDir(); err == nil {
			home = filepath.Join(dir, ".cache", "huggingface")
		}
	}
	s := Settings{
		Cache: expand(first("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")), Endpoint: strings.TrimRight(first("HF_ENDPOINT"), "/"),
		Token: first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), Offline: on(first("HF_HUB_OFFLINE")) || on(first("TRANSFORMERS_OFFLINE")),
		Stall: defaultStall,
	}
	if s.Cache == "" && home != "" {
		s.Cache = filepath.Join(home, "hub")
	}
	if s.Endpoint == "" {
		s.Endpoint = DefaultEndpoint
	}
	if s.Token == "" {
		file := expand(first("HF_TOKEN_PATH"))
		if file == "" && home != "" {
			file = filepath.Join(home, "token")
		}
		s.Token = readToken(file)
	}
	if n, err := strconv.Atoi(first("HF_HUB_DOWNLOAD_TIMEOUT")); err == nil && n > 0 {
		s.Stall = time.Duration(n) * time.Second
	}
	return s
}

func on(v string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(v))
}

// maxToken bounds the size of the token file.
const maxToken = 4096

// readToken returns the token that `hf auth login` stored, "" where there is none.
func readToken(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Progress counts the downloaded bytes of all files of a model.
type Progress struct{ Done, Total int64 }

// Client sends requests to a hub and fills the cache.
type Client struct {
	Settings
	// Agent is the User-Agent of requests.
	Agent string
	// Say receives one-line messages about long operations; nil: none. It may be called from
	// several goroutines.
	Say func(string)
	// Progress receives the progress, one call at a time; nil: none.
	Progress func(Progress)

	// http sends one request and follows no redirect.
	http *http.Client
	// wait returns the pause after a failed attempt; tests shorten it.
	wait func(attempt int) time.Duration
	// part is the number of bytes of one range request.
	part int64
	// open limits concurrent range requests.
	open chan struct{}
	// free returns the free bytes on a folder's disk.
	free func(dir string) (int64, error)
}

const (
	connections = 8        // concurrent range requests
	files       = 4        // files downloaded at once
	partBytes   = 32 << 20 // of one range request
	attempts    = 6        // without progress, before giving up
)

// NewClient returns a client with these settings.
func NewClient(s Settings, agent string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // Content-Length must be the size of the file
	transport.ResponseHeaderTimeout = s.Stall
	transport.MaxIdleConnsPerHost = connections
	transport.MaxResponseHeaderBytes = 1 << 18
	return &Client{
		Settings: s, Agent: agent, part: partBytes, wait: backoff, free: freeBytes, open: make(chan struct{}, connections),
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (c *Client) say(text string) {
	if c.Say != nil {
		c.Say(text)
	}
}
