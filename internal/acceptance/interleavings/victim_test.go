package interleavings

const envVictim = "WATERCLOCK_INTERLEAVINGS_VICTIM"

func playVictim() {}
