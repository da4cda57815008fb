package suggest

import "testing"

func TestName(t *testing.T) {
	known := []string{"timer-at", "timer-after", "timer-target-topic", "timer-max-late"}
	for found, want := range map[string]string{
		"timer-aftr": "timer-after", "timer-target": "timer-target-topic", "timer-maxlate": "timer-max-late",
		"timer-colour": "",
	} {
		if got := Name(found, "timer-", known); got != want {
			t.Errorf("%s: %q, want %q", found, got, want)
		}
	}
}

func TestHeader(t *testing.T) {
	known := []string{"timer-at", "timer-after", "timer-every", "timer-target-topic"}
	for found, want := range map[string]string{
		"timer-due": "timer-at", "timer-delay": "timer-after", "Timer-Interval": "timer-every",
		"timer-to":   "timer-target-topic",
		"timer-aftr": "timer-after", "timer-colour": "",
	} {
		if got := Header(found, known); got != want {
			t.Errorf("%s: %q, want %q", found, got, want)
		}
	}
}

func TestMillis(t *testing.T) {
	const want = 1_893_484_800_500
	for number, unit := range map[int64]string{
		want: "", want * 1000: "microseconds", want * 1000 * 1000: "nanoseconds", want / 1000: "seconds",
	} {
		got, is := Millis(number)
		if is != unit || got/1000 != want/1000 {
			t.Errorf("%d: %d, %q", number, got, is)
		}
	}
}
