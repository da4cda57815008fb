// Package check tests the files in deploy/ with the programs that read them in production. It is a module of its own,
// because they are large and the service needs none of them.
package check
