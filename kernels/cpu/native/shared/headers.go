package shared

import "embed"

// Headers holds this folder's C headers. Packages whose C includes them import this one: the
// go command does not see an #include of another folder, but rebuilds when an import changes.
//
//go:embed *.h
var Headers embed.FS
