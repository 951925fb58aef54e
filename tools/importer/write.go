package importer

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/format"

	"vapp.dev/schema"
)

// order is the order of fields in a profile, as in the schema.
var order = []string{
	"name", "model", "source", "revision", "dtype", "loadFormat", "overrides", "rope", "model.rope.type", "theta", "factor", "original", "attentionFactor", "betaFast", "betaSlow", "lowFreqFactor", "highFreqFactor", "alpha", "shortFactors", "longFactors", "backend", "quantization", "maxModelLen",
	"memory", "utilization", "kvCache", "kvCacheDtype", "swapSpace", "blockSize", "kvRebuild", "reserve",
	"scheduler", "maxNumSeqs", "maxNumBatchedTokens", "prefixCaching", "chunkedPrefill", "policy", "overlap",
	"cudagraph", "mode", "captureSizes",
	"parsers", "reasoning", "toolCall", "reasoningContent", "autoToolChoice", "excludeToolsWhenNone", "chatTemplate", "trustRequestChatTemplate",
	"speculative", "method", "numTokens", "speculative.model", "promptLookupMin", "promptLookupMax", "cpu", "threads", "lora", "maxLoras", "maxRank", "adapters", "allowRuntimeUpdating", "multimodal", "pooling", "type", "limits", "image", "video", "audio",
	"tokens", "minPixels", "maxPixels", "frames", "allowedDomains", "allowedPath", "redirects", "fetchTimeout", "maxFetchBytes", "maxSourcePixels", "cache", "trustRequestKwargs",
	"parallel", "tensor", "pipeline",
	"serve", "host", "port", "servedModelName", "apiKeys", "maxQueue", "maxConcurrentRequests", "maxLogprobs", "tls", "certFile", "keyFile", "kvEvents", "endpoint", "replayEndpoint", "bufferSteps", "hwm", "topic", "hashSeed", "traces", "protocol", "sampling", "serviceName", "drainTimeout", "cors",
	"allowedOrigins", "allowedMethods", "allowedHeaders", "allowCredentials", "accessLog", "logRequests", "docs", "promptTokensDetails", "forceIncludeUsage", "requestIdHeaders", "metricsCompat", "statsInterval",
	"sampling", "generationConfig", "temperature", "topP", "topK", "minP", "repetitionPenalty", "maxTokens",
	"log", "level", "format",
}

// tree is the profile as a tree of fields.
type tree struct {
	name string
	path string
	leaf *field
	kids []*tree
}

// width bounds the length of a struct on one line.
const width = 96

// render returns the text of the profile.
func (d *draft) render() ([]byte, error) {
	root := &tree{}
	for path, f := range d.fields {
		at := root
		for _, name := range strings.Split(path, ".") {
			at = at.kid(name)
		}
		at.leaf = &f
	}
	root.sort()
	var b strings.Builder
	b.WriteString("package profiles\n\nimport \"vapp.dev/schema\"\n\n// Imported from " + d.from + ".\nschema.#Profile & {\n")
	for _, k := range root.kids {
		k.write(&b)
	}
	if len(d.notes) > 0 {
		b.WriteString("\n")
	}
	for _, n := range d.notes {
		comment(&b, n.what+": "+n.why)
	}
	b.WriteString("}\n")
	return format.Source([]byte(b.String()))
}

func (t *tree) kid(name string) *tree {
	for _, k := range t.kids {
		if k.name == name {
			return k
		}
	}
	k := &tree{name: name, path: t.path + "." + name}
	t.kids = append(t.kids, k)
	return k
}

func (t *tree) sort() {
	slices.SortFunc(t.kids, func(a, b *tree) int { return a.rank() - b.rank() })
	for _, k := range t.kids {
		k.sort()
	}
}

// rank returns the position in order of the path, or else of the name.
func (t *tree) rank() int {
	if at := slices.Index(order, strings.TrimPrefix(t.path, ".")); at >= 0 {
		return at
	}
	return slices.Index(order, t.name)
}

// write writes name: value, name: only: value, name: {a: 1, b: 2}, or a struct over several lines
// where it is long or has comments.
func (t *tree) write(b *strings.Builder) {
	if line, ok := t.line(); ok {
		b.WriteString(line + "\n")
		return
	}
	if t.leaf != nil {
		for _, r := range t.leaf.remarks {
			comment(b, r)
		}
		b.WriteString(t.name + ": " + t.leaf.cue + "\n")
		return
	}
	b.WriteString(t.name + ": {\n")
	for _, k := range t.kids {
		k.write(b)
	}
	b.WriteString("}\n")
}

// line returns the tree on one line; false where it needs several.
func (t *tree) line() (string, bool) {
	if t.leaf != nil {
		return t.name + ": " + t.leaf.cue, len(t.leaf.remarks) == 0
	}
	var parts []string
	for _, k := range t.kids {
		s, ok := k.line()
		if !ok {
			return "", false
		}
		parts = append(parts, s)
	}
	s := t.name + ": " + strings.Join(parts, ", ")
	if len(parts) > 1 {
		s = t.name + ": {" + strings.Join(parts, ", ") + "}"
	}
	return s, len(s) <= width || len(t.kids) == 1
}

// comment writes text as a comment, wrapped.
func comment(b *strings.Builder, text string) {
	line := "//"
	for _, w := range strings.Fields(schema.OneLine(text)) {
		if len(line)+1+len(w) > width && line != "//" {
			b.WriteString(line + "\n")
			line = "//  "
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}
