package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/hub/hubtest"
)

// TestFaultsPass checks that faults which occur once or twice are retried.
func TestFaultsPass(t *testing.T) {
	for name, fault := range map[string]func(hubtest.Request) *hubtest.Fault{
		"cuts": func(r hubtest.Request) *hubtest.Fault {
			if r.Store && r.N == 0 {
				return &hubtest.Fault{Cut: 1000}
			}
			return nil
		},
		"no answer to the list": func(r hubtest.Request) *hubtest.Fault {
			if strings.HasPrefix(r.Path, "/api/") && r.N < 3 {
				return &hubtest.Fault{Status: 500 + r.N}
			}
			return nil
		},
		"busy": func(r hubtest.Request) *hubtest.Fault {
			if r.Store && r.N < 2 {
				return &hubtest.Fault{Status: 429, RetryAfter: "0"}
			}
			return nil
		},
		"stalls": func(r hubtest.Request) *hubtest.Fault {
			if r.Store && r.N == 0 && strings.HasPrefix(r.Range, "bytes=16384") {
				return &hubtest.Fault{Stall: time.Minute}
			}
			return nil
		},
		"damage": func(r hubtest.Request) *hubtest.Fault {
			if r.Store && r.N == 0 && strings.HasPrefix(r.Range, "bytes=0-") {
				return &hubtest.Fault{Flip: true}
			}
			return nil
		},
		"no ranges": func(r hubtest.Request) *hubtest.Fault { return &hubtest.Fault{NoRange: true} },
		"cuts, unranged": func(r hubtest.Request) *hubtest.Fault {
			return &hubtest.Fault{NoRange: true, Cut: 1000 * (1 - min(1, r.N))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _, c := start(t)
			c.Stall = 300 * time.Millisecond
			h.Misbehave(fault)
			got, err := pull(c, named(t, model), Want{})
			if err != nil {
				t.Fatal(err)
			}
			holds(t, got.Path, tiny(), served...)
		})
	}
}

// TestFaultsStay checks that a permanent fault is reported in one line, and that no incomplete file
// keeps the name of a complete one.
func TestFaultsStay(t *testing.T) {
	shard := hubtest.Blob(tiny()["model-00001-of-00002.safetensors"])
	of := func(f hubtest.Fault) func(hubtest.Request) *hubtest.Fault {
		return func(r hubtest.Request) *hubtest.Fault {
			if strings.HasSuffix(r.Path, shard) {
				return &f
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		fault func(hubtest.Request) *hubtest.Fault
		kind  Kind
		msg   string
	}{
		"damage":       {of(hubtest.Fault{Flip: true}), Damaged, "was downloaded twice with another hash"},
		"shorter file": {of(hubtest.Fault{Content: noise(50_000, 9)}), Damaged, "lists model-00001-of-00002.safetensors with 100000 bytes and "},
		"longer file":  {of(hubtest.Fault{Content: noise(200_000, 9)}), Damaged, "and sends 200000"},
		"errors":       {of(hubtest.Fault{Status: 502}), Unreachable, "answered 502 Bad Gateway; try again later"},
		"cuts":         {of(hubtest.Fault{Cut: 1}), Unreachable, "cannot be reached: unexpected EOF"},
		"stalls":       {of(hubtest.Fault{Stall: time.Minute}), Unreachable, "no bytes came for too long"},
		"round":        {of(hubtest.Fault{Redirect: "/" + shard}), Unreachable, "redirects more than"},
		"file scheme":  {of(hubtest.Fault{Redirect: "file:///etc/passwd"}), Unreachable, "not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _, cl := start(t)
			cl.Stall = 100 * time.Millisecond
			h.Misbehave(c.fault)
			_, err := pull(cl, named(t, model), Want{})
			refused(t, name, err, c.kind, c.msg)
			if _, err := os.Stat(cl.blob(named(t, model), shard)); err == nil {
				t.Error("a blob is there though it never came whole")
			}
			if _, ok := cl.Find(named(t, model), Want{}); ok {
				t.Error("the model is found")
			}
		})
	}
}

// TestToken checks that the token is sent to the endpoint and not to redirect targets.
func TestToken(t *testing.T) {
	h, repo, c := start(t)
	repo.Gated, repo.Private, repo.Token = true, true, "hf_secret"
	c.Token = "hf_secret"
	if _, err := pull(c, named(t, model), Want{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range h.Requests() {
		if want := "Bearer hf_secret"; !r.Store && r.Token != want || r.Store && r.Token != "" {
			t.Errorf("%+v", r)
		}
	}
	// The same host with a user name in the address, or with another port, is not the endpoint.
	h.Misbehave(func(r hubtest.Request) *hubtest.Fault {
		if strings.HasPrefix(r.Path, "/api/") && !r.Store {
			return &hubtest.Fault{Redirect: h.Store + "/api/x"}
		}
		return nil
	})
	_, err := pull(client(t, h, t.TempDir()), named(t, model), Want{})
	if err == nil || strings.Contains(err.Error(), "hf_secret") {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	h, repo, c := start(t)
	repo.Gated, repo.Token = true, "right"
	_, err := pull(c, named(t, model), Want{})
	refused(t, "gated", err, Gated, "requested anonymously: set HF_TOKEN")
	refused(t, "gated", err, Gated, "accept its terms at "+h.URL+"/"+model)
	c.Token = "wrong"
	_, err = pull(c, named(t, model), Want{})
	refused(t, "gated, wrong token", err, Gated, "with your token")
	repo.Private = true
	_, err = pull(c, named(t, model), Want{})
	refused(t, "private", err, NotFound, "no such model, or it is private")
	_, err = pull(c, named(t, "acme/none"), Want{})
	refused(t, "missing", err, NotFound, "has no such model; mind the spelling")
	c.Offline = true
	_, err = pull(c, named(t, model), Want{})
	refused(t, "offline", err, Offline, "fetch it first with `vapp pull acme/tiny`")
	h.Close()
	c.Offline = false
	_, err = pull(c, named(t, model), Want{})
	refused(t, "nobody there", err, Unreachable, "cannot be reached: ")
	if !strings.Contains(err.Error(), c.Cache) || !strings.Contains(err.Error(), "HF_HOME") {
		t.Errorf("without the cache's folder, or without a remedy: %v", err)
	}
	if strings.Contains(err.Error(), "Get ") {
		t.Errorf("not for people: %v", err)
	}
}

// TestNoNetwork checks that a name that cannot be resolved is said once, and not tried for long.
func TestNoNetwork(t *testing.T) {
	_, _, c := start(t)
	tries := 0
	c.http.Transport = failing(func() error {
		tries++
		return &net.DNSError{Err: "no such host", Name: "hub.example", IsNotFound: true}
	})
	var said []string
	c.Say = func(text string) { said = append(said, text) }
	_, err := pull(c, named(t, model), Want{})
	refused(t, "no network", err, Unreachable, "no such host; try again")
	if tries != dnsAttempts || len(said) != 1 || !strings.Contains(said[0], "no such host; trying again for a while") {
		t.Errorf("%d tries, said %q", tries, said)
	}
}

// failing is a transport whose requests all fail.
type failing func() error

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f() }

// TestHostileListing checks that names and ids that leave the cache are refused before anything is
// written.
func TestHostileListing(t *testing.T) {
	outside := t.TempDir()
	for _, name := range []string{
		"../evil.json", "/etc/passwd", "a/../../evil", "a\x00b", "a\\..\\b", "./config.json", "a//b", "", "..", filepath.Join(outside, "x"), strings.Repeat("a", 300),
	} {
		h, repo, c := start(t)
		repo.Listing = listing(t, hubtest.Commit(0), map[string]any{"rfilename": name, "size": 1, "blobId": hubtest.Blob(nil)})
		_, err := pull(c, named(t, model), Want{})
		refused(t, name, err, Untrusted, "nothing was downloaded")
		if left, _ := os.ReadDir(c.Cache); len(left) > 0 {
			t.Errorf("%q: the cache has %v", name, left)
		}
		h.Close()
	}
	for what, body := range map[string][]byte{
		"commit":    listing(t, "../../x"),
		"blob":      listing(t, hubtest.Commit(0), file("config.json", 7, "../../../evil"), file("tokenizer.json", 1, hubtest.Blob(nil)), file("model.safetensors", 1, hubtest.Blob(nil))),
		"size":      listing(t, hubtest.Commit(0), file("config.json", 1<<60, hubtest.Blob(nil)), file("tokenizer.json", 1, hubtest.Blob(nil)), file("model.safetensors", 1, hubtest.Blob(nil))),
		"two alike": listing(t, hubtest.Commit(0), file("config.json", 1, hubtest.Blob(nil)), file("config.json", 1, hubtest.Blob(nil))),
	} {
		_, repo, c := start(t)
		repo.Listing = body
		_, err := pull(c, named(t, model), Want{})
		refused(t, what, err, Untrusted, "")
	}
	_, repo, c := start(t)
	repo.Listing = []byte("<html>")
	_, err := pull(c, named(t, model), Want{})
	refused(t, "html", err, Unreachable, "is HF_ENDPOINT a Hugging Face hub?")
	// An index that names files outside the repository.
	evil := tiny()
	evil["model.safetensors.index.json"] = []byte(`{"weight_map":{"x":"../../../../evil.safetensors"}}`)
	repo.Listing, repo.Trees[hubtest.Commit(0)] = nil, evil
	_, err = pull(c, named(t, model), Want{})
	refused(t, "index", err, Unsuitable, "not a safetensors file of the repository")
}

func file(name string, size int64, blob string) map[string]any {
	return map[string]any{"rfilename": name, "size": size, "blobId": blob}
}

func listing(t *testing.T, commit string, files ...map[string]any) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"sha": commit, "siblings": files})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWithoutHashes checks that sizes and hashes are requested per file where the listing has none.
func TestWithoutHashes(t *testing.T) {
	_, repo, c := start(t)
	repo.NoHashes = true
	got, err := pull(c, named(t, model), Want{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got.Path, tiny(), served...)
}

// TestCancel checks that a canceled fetch returns at once with the cause of its context.
func TestCancel(t *testing.T) {
	h, _, c := start(t)
	c.Stall = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	h.Misbehave(func(r hubtest.Request) *hubtest.Fault {
		if r.Store {
			cancel()
			return &hubtest.Fault{Stall: time.Minute}
		}
		return nil
	})
	p, err := c.Open(ctx, named(t, model), Want{})
	if err == nil {
		_, err = p.Weights(ctx)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
