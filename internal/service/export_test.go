package service

// MaxReplays is for the tests that stand outside.
const MaxReplays = maxReplays
