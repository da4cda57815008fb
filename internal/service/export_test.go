package service

// ReplaySlots is for the tests that stand outside.
func ReplaySlots(cores int) int { return replaySlots(cores) }
