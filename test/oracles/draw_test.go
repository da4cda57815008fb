package oracles

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// zones are zones whose clocks have been changed in ordinary and in odd ways.
var zones = strings.Fields(`UTC Europe/Berlin Europe/London Europe/Dublin America/New_York America/Los_Angeles
	America/Sao_Paulo America/Havana America/Asuncion America/Caracas America/St_Johns America/Scoresbysund
	Antarctica/Troll Antarctica/Casey Africa/Casablanca Africa/Cairo Africa/Windhoek Africa/Lagos Asia/Kolkata
	Asia/Kathmandu Asia/Tehran Asia/Gaza Asia/Beirut Asia/Pyongyang Asia/Tokyo Australia/Lord_Howe Pacific/Apia
	Pacific/Chatham Pacific/Kiritimati Pacific/Auckland`)

// from and to bound the starts. The newest rules that every oracle here has are of 2025, and Java's end in 2037.
var from, to, horizon = year(1995), year(2025), year(2037)

func year(y int) int64 { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).Unix() }

// start draws an instant, every second time within two days before a change of the clock.
func start(rng *rand.Rand, loc *time.Location) int64 {
	at := from + rng.Int64N(to-from)
	if next := calendar.Changes(loc, at, to, 1); len(next) > 0 && rng.IntN(2) == 0 {
		at = next[0].At - 1 - rng.Int64N(1<<rng.IntN(18))
	}
	return at
}

// months and weekdays are names by their number.
var months = strings.Fields("- jan feb mar apr may jun jul aug sep oct nov dec")
var weekdays = strings.Fields("sun mon tue wed thu fri sat")

// expression is one that was drawn, by its six fields.
type expression struct {
	*calendar.Expression
	text   string
	fields []string
}

// draw returns an expression that some date matches. At least every second has L, W or #, and one of six seconds.
func draw(rng *rand.Rand) expression {
	for relative := rng.IntN(2) == 0; ; {
		f := []string{"0", field(rng, 0, 59, nil), field(rng, 0, 23, nil), field(rng, 1, 31, nil),
			field(rng, 1, 12, months), field(rng, 0, 7, weekdays)}
		for i := 3; i < len(f); i++ { // most expressions have stars on the right
			if rng.IntN(5) < 3 {
				f[i] = "*"
			}
		}
		text := strings.Join(f[1:], " ")
		if rng.IntN(6) == 0 {
			f[0] = field(rng, 0, 59, nil)
			text = strings.Join(f, " ")
		}
		if e, err := calendar.Parse(text); err == nil && (!relative || (expression{e, text, f}).has(placed)) {
			return expression{e, text, f}
		}
	}
}

func field(rng *rand.Rand, low, high int, names []string) string {
	var items []string
	for range 1 + rng.IntN(2)*rng.IntN(4) {
		items = append(items, item(rng, low, high, names))
	}
	return strings.Join(items, ",")
}

func item(rng *rand.Rand, low, high int, names []string) string {
	value := func() string {
		n := low + rng.IntN(high-low+1)
		if n < len(names) && rng.IntN(2) == 0 {
			return names[n]
		}
		return strconv.Itoa(n)
	}
	step := fmt.Sprint("/", 1+rng.IntN(min(high, 31)-low)) // as far as Quartz takes them
	switch ofDay := high == 31 || high == 7; rng.IntN(12) {
	case 0:
		return "*"
	case 1:
		return "*" + step
	case 2:
		return value() + step
	case 3, 4:
		return value() + "-" + value()
	case 5:
		return value() + "-" + value() + step
	case 6:
		if ofDay {
			return "?"
		}
	case 7, 8, 9:
		switch high {
		case 31:
			edge := fmt.Sprintf("%dW", (27+rng.IntN(5))%31+1) // 28W to 31W and 1W, which weekends may move far
			return []string{"L", "LW", fmt.Sprint("L-", 1+rng.IntN(30)), value() + "W", edge}[rng.IntN(5)]
		case 7:
			return value() + []string{"L", fmt.Sprint("#", 1+rng.IntN(5))}[rng.IntN(2)]
		}
	}
	return value()
}
