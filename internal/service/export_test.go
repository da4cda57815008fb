package service

// ReplaySlots is for the tests that stand outside.
func ReplaySlots() int { return int(replaySlots()) }
