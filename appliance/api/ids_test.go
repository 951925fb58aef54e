package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/appliance/responses"
)

// TestOneIDAtOnce checks that concurrent requests with the same id get responses with
// different ids.
func TestOneIDAtOnce(t *testing.T) {
	const n = 8
	h, s, g, store := gatedServer(t, "")
	replies := make(chan string, 2*n)
	var ready, all sync.WaitGroup
	ready.Add(2 * n)
	for i := range 2 * n {
		all.Go(func() {
			body := `{"input":"hi","background":true}`
			if i%2 == 1 {
				body = `{"input":"hi"}` // the reply comes when the model has finished
			}
			ready.Done()
			ready.Wait()
			replies <- respondWithID(t, h, body, "mine")
		})
	}
	for range 2 * n {
		<-g.started
	}
	close(g.say)
	all.Wait()
	ids := map[string]bool{}
	for range 2 * n {
		ids[<-replies] = true
	}
	s.Close()
	if len(ids) != 2*n || !ids["resp_mine"] {
		t.Errorf("%d ids of %d responses: %v", len(ids), 2*n, ids)
	}
	for id := range ids {
		if rec, err := store.Get(responses.Owner{}, id); err != nil || rec.Running || !strings.Contains(string(rec.Body), `"status":"completed"`) {
			t.Errorf("%s: %v %s", id, err, rec.Body)
		}
	}
	if len(s.tasks.taken)+len(s.tasks.running) != 0 {
		t.Errorf("%d ids are reserved, %d tasks run", len(s.tasks.taken), len(s.tasks.running))
	}
}

// TestRefusedFreesID checks that the id of a refused request can be used again.
func TestRefusedFreesID(t *testing.T) {
	s, _ := storingServer(t, &chattest.Model{}, testSettings())
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	for _, body := range []string{`{"input":"hi","temperature":-1}`, `{"input":"hi","temperature":-1,"background":true}`} {
		if id := respondWithID(t, h, body, "mine"); id != "" {
			t.Fatalf("%s: %s", body, id)
		}
	}
	if id := respondWithID(t, h, `{"input":"hi"}`, "mine"); id != "resp_mine" {
		t.Errorf("%q", id)
	}
}

// respondWithID sends a request with a request id and returns the response's id.
func respondWithID(t *testing.T, h *httptest.Server, body, requestID string) string {
	r, err := http.NewRequest("POST", h.URL+"/v1/responses", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", requestID)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var o struct{ ID string }
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		t.Error(err)
	}
	return o.ID
}

// TestEveryIDIsReachable checks that a response can be read, listed, cancelled and
// deleted for any id that a client chose, with and without escaping.
func TestEveryIDIsReachable(t *testing.T) {
	s, _ := storingServer(t, &chattest.Model{}, testSettings())
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	chosen := []string{
		"plain-1._~", "a/b", "/", "..", "a/../b", "a%2Fb", "50%", "a b", "a:b@c", "Root=1-67891233-abcdef012345678912345678",
		"105445aa/2;o=1", "x?stream=true", "x#y", "a+b", "é", "\xff", `"`, "cancel", "a\\b", strings.Repeat("x", 256), strings.Repeat("x", 257),
	}
	seen := map[string]bool{}
	for _, c := range chosen {
		for _, escape := range []func(string) string{func(s string) string { return s }, url.PathEscape, url.QueryEscape} {
			id := respondWithID(t, h, `{"input":"hi","background":true}`, c)
			if seen[id] || id == "" {
				t.Fatalf("chosen %q: %q again", c, id)
			}
			path := "/v1/responses/" + escape(id)
			body := until(t, h, escape(id), "completed")
			if got, _ := status(t, body); got != id {
				t.Errorf("chosen %q: %s is %s", c, path, got)
			}
			for _, x := range [][2]string{{"GET", path + "/input_items"}, {"POST", path + "/cancel"}, {"DELETE", path}} {
				if code, body := call(t, h, x[0], x[1], ""); code != 200 {
					t.Errorf("chosen %q: %s %s: %d %s", c, x[0], x[1], code, body)
				}
			}
			if code, _ := call(t, h, "GET", path, ""); code != 404 {
				t.Errorf("chosen %q: %s is there after it was deleted: %d", c, path, code)
			}
		}
	}
	if id := respondWithID(t, h, `{"input":"hi"}`, "plain-1._~"); id != "resp_plain-1._~" {
		t.Errorf("an id that can stand in a path became %q", id)
	}
}

// TestOldIDs checks that a response whose id has a slash, stored by an earlier version,
// is found by its escaped id.
func TestOldIDs(t *testing.T) {
	s, store := storingServer(t, &chattest.Model{}, testSettings())
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	for _, id := range []string{"resp_a/b", "resp_100%", "resp_a%2Fb", "resp_ä:b"} {
		if err := store.Put(responses.Owner{}, responses.Record{ID: id, Body: []byte(`{"status":"completed"}`)}); err != nil {
			t.Fatal(err)
		}
		if code, body := call(t, h, "GET", "/v1/responses/"+url.PathEscape(id), ""); code != 200 {
			t.Errorf("%s: %d %s", id, code, body)
		}
		if code, body := call(t, h, "DELETE", "/v1/responses/"+url.PathEscape(id), ""); code != 200 {
			t.Errorf("%s: %d %s", id, code, body)
		}
	}
}

// TestChosenIDs checks that an id with other characters than printable ASCII is not used
// in headers and ids.
func TestChosenIDs(t *testing.T) {
	set := testSettings()
	set.RequestIDHeaders = true
	s := testServer(&chattest.Model{}, set)
	ask := func(header, body string) (string, string) {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header["X-Request-Id"] = []string{header}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		id, _ := status(t, w.Body.String())
		return w.Header().Get("X-Request-Id"), id
	}
	for _, c := range []string{"a\r\nSet-Cookie: x=1", "a\x00b", "\x7f", "é", "\xff", "a\tb", strings.Repeat("x", 257), ""} {
		if got, id := ask(c, `{"prompt":"hi"}`); !strings.HasPrefix(got, "id") || id != "cmpl-"+got {
			t.Errorf("header %q: X-Request-Id %q, id %q", c, got, id)
		}
		in, _ := json.Marshal(map[string]string{"prompt": "hi", "request_id": c})
		if _, id := ask("", string(in)); !strings.HasPrefix(id, "cmpl-id") {
			t.Errorf("body %q: id %q", c, id)
		}
	}
	if got, id := ask("105445aa/2;o=1 x", `{"prompt":"hi"}`); got != "105445aa/2;o=1 x" || id != "cmpl-"+got {
		t.Errorf("X-Request-Id %q, id %q", got, id)
	}
}
