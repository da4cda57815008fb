package node

// ReplaySlots is for the tests that stand outside.
func ReplaySlots(cores, room int) int { return replaySlots(cores, room) }
