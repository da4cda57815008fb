package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/near"
)

// lastYear is the last one that RFC 3339 can write, and JSON.
const lastYear = 9999

// instant reads a flag that is a time: RFC 3339 with a zone, or Unix milliseconds.
func instant(flag, text string) (time.Time, error) {
	at, why := readInstant(text)
	if why != "" {
		return at, usagef("--%s is %q, %s", flag, text, why)
	}
	return at, nil
}

// readInstant reads a time, or says what is wrong with it.
func readInstant(text string) (at time.Time, why string) {
	at, err := time.Parse(time.RFC3339, text)
	if err == nil {
		return at, ""
	}
	if number, bad := strconv.ParseInt(text, 10, 64); bad == nil && number > 0 {
		millis, unit := near.Millis(number)
		if at = time.UnixMilli(number).UTC(); unit == "" && at.Year() > lastYear {
			why = fmt.Sprintf("which as Unix milliseconds is after the year %d", lastYear)
		}
		if unit == "" {
			return at, why
		}
		return at, fmt.Sprintf("which is no time of today in milliseconds: if it is in %s, write %d", unit, millis)
	}
	return at, notATime(text, err)
}

// zoneless are the formats of times that lack only a zone, or more.
var zoneless = []string{
	"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
}

// notATime says why a text is not RFC 3339. err is the error of parsing it.
func notATime(text string, err error) string {
	const example = "2030-01-01T09:00:00+01:00 or 2030-01-01T08:00:00Z"
	if why := notADate(text, err); why != "" {
		return why
	}
	for _, layout := range zoneless {
		at, err := time.Parse(layout, text)
		if why := notADate(text, err); why != "" {
			return why
		}
		if err == nil {
			whole := at.Format("2006-01-02T15:04:05.999")
			return fmt.Sprintf("which has no zone: %sZ is that time in UTC, %[1]s+01:00 the one an hour east of it",
				whole)
		}
	}
	return "needs a time such as " + example + ", or Unix milliseconds"
}

// notADate says why a date or a time of day does not exist; "" if that is not what is wrong.
func notADate(text string, err error) string {
	bad, ok := errors.AsType[*time.ParseError](err)
	if !ok || !strings.HasSuffix(bad.Message, "out of range") {
		return ""
	}
	var year, month, day int
	if n, _ := fmt.Sscanf(text, "%d-%d-%d", &year, &month, &day); n == 3 && month >= 1 && month <= 12 {
		last := time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if day < 1 || day > last {
			return fmt.Sprintf("which does not exist: %s %d has the days 1 to %d", time.Month(month), year, last)
		}
	}
	return "which does not exist:" + strings.TrimPrefix(bad.Message, ":")
}
