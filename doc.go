// Package vapp is the root of the module and holds only tests of the whole tree: the import law,
// package comments, names and tracked files. It must not import any package of the module.
// Start reading at TestImportLaw in law_test.go; the program starts in cmd/vapp.
package vapp
