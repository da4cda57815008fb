//go:build race

package runs

const raced = true
