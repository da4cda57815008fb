package topics

import (
	"errors"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

func TestCalendarsName(t *testing.T) {
	long := strings.Repeat("g", 300)
	for group, want := range map[string]string{
		"waterclock": "waterclock.waterclock.calendars", "a/b": "a_2fb.waterclock.calendars",
		"é": "_c3_a9.waterclock.calendars",
	} {
		if got := Calendars(group); got != want {
			t.Errorf("%s: %s, want %s", group, got, want)
		}
	}
	if a, b := Calendars(long), Calendars(long+"x"); len(a) != maxTopicName || a == b {
		t.Errorf("%d bytes: %s, %s", len(a), a, b)
	}
	if !IsOwn(Calendars("g")) {
		t.Error("timers may fire to the topic of calendars")
	}
}

func TestEnsureCalendars(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 3, nil)
		group, requests := v.Topic+"-g", []string{v.Topic}
		problems, err := EnsureCalendars(v.Ctx, v.Adm, group, requests, Options{})
		if err != nil || len(problems) != 1 || !problems[0].Gone() {
			t.Fatalf("missing: %v, %v", problems, err)
		}
		for range 2 {
			if problems, err = EnsureCalendars(v.Ctx, v.Adm, group, requests, Options{Create: true}); err != nil ||
				len(problems) > 0 {
				t.Fatalf("created: %v, %v", problems, err)
			}
		}
		c, err := describeCalendars(v.Ctx, v.Adm, group, requests)
		if err != nil || c.partitions != 1 || c.replicas != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		needed, wanted := c.settings(1)
		want := configs(needed)
		if v.Fake == nil {
			want = configs(needed, wanted)
		}
		for name, value := range want {
			if got := c.found.settings[name]; got != *value {
				t.Errorf("%s is %q, want %s", name, got, *value)
			}
		}

		v.Create(Calendars("wrong"+v.Topic), 2, map[string]string{"cleanup.policy": "delete"})
		var fatal *ProblemsError
		if _, err = EnsureCalendars(v.Ctx, v.Adm, "wrong"+v.Topic, requests, Options{Create: true}); !errors.As(err,
			&fatal) {
			t.Fatal(err)
		}
		var got []string
		for _, p := range fatal.Problems {
			got = append(got, p.Setting)
		}
		if want := "partitions cleanup.policy message.timestamp.type"; strings.Join(got, " ") != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
}
