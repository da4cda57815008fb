// Package check tests what is in deploy/ with the field's own programs. It is a module of its own,
// since they are large and the service needs none of them.
package check
