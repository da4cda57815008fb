// Package importtest holds the table of DESIGN section 3 that says which folder
// must not know what. Its test loads the module with "go list" and fails for
// each import that breaks a rule. Folders that do not exist break none. What
// test files import is free.
package importtest
