package schema

import "embed"

// cueFiles holds the definitions. Init publishes them, and Load resolves
// `import "vapp.dev/schema"` to them.
//
//go:embed *.cue
var cueFiles embed.FS

// ImportPath is the path under which profiles import the definitions.
const ImportPath = "vapp.dev/schema"

// modulePath is the CUE module of ImportPath.
const modulePath = "vapp.dev"
