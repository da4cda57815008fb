// Package importtest says which directory must not know what. Its test loads the
// module with "go list" and fails for each import that breaks a rule. Directories
// that do not exist break none. What test files import is free.
//
// A linter's rule (depguard) would see the import lines of a file alone: not what
// comes behind them, not a new public directory, nor a second package that binds all
// others.
package importtest
