package appliance

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/appliance/hub"
	"vapp.dev/schema"
)

// TestHubErrors checks what a profile's error adds to one of the hub: the path that was looked for,
// and similar names of a model that the hub does not have.
func TestHubErrors(t *testing.T) {
	p, err := schema.Parse("/x/p.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"a\"\n\tmodel: source: \"meta-llama/Llama-3.2-1B-Instruc\"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	n, ok := hub.ParseName(p.Model.Source)
	if !ok {
		t.Fatal("no name of a hub")
	}
	for kind, want := range map[hub.Kind]string{
		hub.NotFound:    "said; did you mean meta-llama/Llama-3.2-1B-Instruct? (and there is no file or folder /x/meta-llama/Llama-3.2-1B-Instruc)",
		hub.Unreachable: "said (and there is no file or folder /x/meta-llama/Llama-3.2-1B-Instruc)",
		hub.Offline:     "said (and there is no file or folder /x/meta-llama/Llama-3.2-1B-Instruc)",
		hub.Gated:       "said",
	} {
		err := atSourceField(p, &hub.Error{Kind: kind, Name: n, Msg: "said"})
		var placed *schema.Error
		if !errors.As(err, &placed) || !strings.HasSuffix(err.Error(), "p.cue:5:9: model.source: model meta-llama/Llama-3.2-1B-Instruc: "+want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	other := errors.New("another")
	if atSourceField(p, other) != other || WithNear(other) != other || atSourceField(p, nil) != nil {
		t.Error("another error was changed")
	}
}
