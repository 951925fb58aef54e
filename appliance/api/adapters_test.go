package api

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// adapterServer returns a server whose model has the adapter sql, and the model.
func adapterServer(t *testing.T, log *slog.Logger) (*Server, *chattest.Model) {
	t.Helper()
	m := &chattest.Model{Adapters: &chattest.Adapters{Slots: 1}}
	if err := m.Adapters.LoadAdapter(t.Context(), "sql", "/adapters/sql", false); err != nil {
		t.Fatal(err)
	}
	set := testSettings()
	set.AccessLog, set.Chat.Adapter = true, m.Adapters.Has
	c := testConfig(m)
	if log != nil {
		c.Log = log
	}
	return New(c, set), m
}

// TestAdapterOfRoute checks that in each route for tokens a model name that is an adapter's reaches
// the engine as the adapter, and the reply has the name.
func TestAdapterOfRoute(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	for path, body := range map[string]string{
		"/v1/chat/completions":       `{"model":"NAME",` + messages + `}`,
		"/v1/chat/completions/batch": `{"model":"NAME","messages":[[{"role":"user","content":"hi"}]]}`,
		"/v1/completions":            `{"model":"NAME","prompt":"hi"}`,
		"/v1/messages":               `{"model":"NAME","max_tokens":8,` + messages + `}`,
		"/v1/responses":              `{"model":"NAME","input":"hi"}`,
		"/inference/v1/generate":     `{"model":"NAME","token_ids":[72],"sampling_params":{"max_tokens":4}}`,
		"/invocations":               `{"model":"NAME","prompt":"hi"}`,
	} {
		for _, name := range []string{"sql", "also"} {
			s, m := adapterServer(t, nil)
			w := post(s, path, strings.ReplaceAll(body, "NAME", name))
			if w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
				continue
			}
			want := ""
			if name == "sql" {
				want = name
			}
			for _, r := range m.Requests() {
				if r.Adapter != want {
					t.Errorf("%s as %s: the engine got the adapter %q", path, name, r.Adapter)
				}
			}
			if path != "/inference/v1/generate" && !strings.Contains(w.Body.String(), `"model":"`+name+`"`) {
				t.Errorf("%s as %s: %s", path, name, w.Body)
			}
		}
	}
}

// TestAdapterWithoutEngine checks the routes that only tokenize.
func TestAdapterWithoutEngine(t *testing.T) {
	for path, body := range map[string]string{
		"/tokenize":                   `{"model":"NAME","prompt":"hi"}`,
		"/detokenize":                 `{"model":"NAME","tokens":[72]}`,
		"/v1/completions/render":      `{"model":"NAME","prompt":"hi"}`,
		"/v1/messages/count_tokens":   `{"model":"NAME","messages":[{"role":"user","content":"hi"}]}`,
		"/v1/chat/completions/render": `{"model":"NAME","messages":[{"role":"user","content":"hi"}]}`,
	} {
		s, _ := adapterServer(t, nil)
		if w := post(s, path, strings.ReplaceAll(body, "NAME", "sql")); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if w := post(s, path, strings.ReplaceAll(body, "NAME", "other")); w.Code != http.StatusNotFound {
			t.Errorf("%s with an unknown name: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestAdapterGone checks the reply to a request whose adapter was unloaded after its name was
// resolved: that of an unknown model.
func TestAdapterGone(t *testing.T) {
	s, m := adapterServer(t, nil)
	m.Refuse = &engine.AdapterError{Name: "sql", Kind: engine.AdapterUnknown, Reason: "it is not loaded"}
	w := post(s, "/v1/completions", `{"model":"sql","prompt":"hi"}`)
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "The model `sql` does not exist.") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestAdapterLogged checks that the access line names the adapter of a request, and only then.
func TestAdapterLogged(t *testing.T) {
	for name, want := range map[string]bool{"sql": true, "test": false} {
		var b bytes.Buffer
		s, _ := adapterServer(t, slog.New(slog.NewTextHandler(&b, nil)))
		post(s, "/v1/completions", `{"model":"`+name+`","prompt":"hi"}`)
		if got := strings.Contains(b.String(), "lora=sql"); got != want {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}
