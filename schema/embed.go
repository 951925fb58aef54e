package schema

import "embed"

// cueFiles are the definitions, as published by Init and as Load resolves
// `import "vapp.dev/schema"`.
//
//go:embed *.cue
var cueFiles embed.FS

// ImportPath is the name under which profiles import the definitions.
const ImportPath = "vapp.dev/schema"

// modulePath is the CUE module that holds them.
const modulePath = "vapp.dev"
