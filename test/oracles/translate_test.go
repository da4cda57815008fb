package oracles

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// placed matches items for days that each month places anew.
var placed = regexp.MustCompile(`^(?:L|LW|L-\d+|\d+W|(\w+)(L|#\d))$`)

// has reports whether an item of a field for days matches.
func (e expression) has(item *regexp.Regexp) bool {
	return slices.ContainsFunc(strings.Split(e.fields[3]+","+e.fields[5], ","), item.MatchString)
}

// starred reports whether a field for days begins with a star, and open whether it is nothing else.
func starred(field string) bool { return strings.ContainsAny(field[:1], "*?") }
func open(field string) bool    { return field == "*" || field == "?" }

// cronsim translates for cronsim, which has neither 15W nor L-3: "" then. It takes digits before L, and no sat-sun;
// thu-thu/3 means thu/3 to it.
func (e expression) cronsim() string {
	if e.has(regexp.MustCompile(`^(L-\d+|\d+W)$`)) {
		return ""
	}
	e = e.singles()
	week := each(e.fields[5], func(item string) string {
		if m := placed.FindStringSubmatch(item); m != nil {
			return fmt.Sprint(number(m[1], weekdays), m[2])
		}
		span, step, stepped := strings.Cut(item, "/")
		if from, to, ok := strings.Cut(span, "-"); ok && number(to, weekdays) == 0 && number(from, weekdays) > 0 {
			span = from + "-7"
		}
		if stepped {
			span += "/" + step
		}
		return span
	})
	f := append(e.fields[:5:5], week)
	if strings.Count(e.text, " ") == 4 {
		f = f[1:]
	}
	return "or\t" + strings.Join(f, " ") + "\t"
}

// singles writes ranges of one value as that value, and ? as a star.
func (e expression) singles() expression {
	e.fields = slices.Clone(e.fields)
	for i, names := range [][]string{5: weekdays, 4: months, 0: nil} {
		e.fields[i] = each(e.fields[i], func(item string) string {
			span, _, _ := strings.Cut(item, "/")
			from, to, isRange := strings.Cut(span, "-")
			if low, high := number(from, names), number(to, names); isRange && (low == high || low == 7 && high == 0) {
				return from
			}
			return strings.ReplaceAll(item, "?", "*")
		})
	}
	return e
}

// croniter translates for croniter, which has neither LW nor L-3: "" then. It writes L5, takes what a month places
// neither in a list nor beside another field for days, and reads 5-5 as all values.
func (e expression) croniter() string {
	if e.has(regexp.MustCompile(`^(L-\d+|LW)$`)) {
		return ""
	}
	e = e.singles()
	if !e.has(placed) {
		return "or\t" + strings.Join(e.fields, " ") + "\t"
	}
	return e.split("*", func(item string) string {
		if m := placed.FindStringSubmatch(item); m != nil && m[2] == "L" {
			return fmt.Sprint("L", number(m[1], weekdays))
		}
		return item
	})
}

// quartz translates for Quartz, which numbers days of the week from Sunday, 1, takes only one of the fields for days,
// and ignores steps behind names.
func (e expression) quartz() string {
	e.fields = slices.Clone(e.fields)
	e.fields[4] = each(e.fields[4], func(item string) string {
		for i, name := range months[1:] {
			item = strings.ReplaceAll(item, name, strconv.Itoa(1+i))
		}
		return item
	})
	e.fields[3] = strings.ReplaceAll(e.fields[3], "?", "*")
	return e.split("?", quartzWeekdays)
}

// quartzWeekdays lists the days of an item, except those that a month places.
func quartzWeekdays(item string) string {
	span, step, stepped := strings.Cut(item, "/")
	from, to, isRange := strings.Cut(span, "-")
	low := number(from, weekdays)
	high, by := low, 1
	switch m := placed.FindStringSubmatch(item); {
	case m != nil:
		return fmt.Sprint(number(m[1], weekdays)%7+1, m[2])
	case starred(item):
		low, high = 0, 7
	case isRange:
		if high = number(to, weekdays); high < low { // sat-sun
			high = 7
		}
	case stepped:
		high = 7
	}
	if stepped {
		by = number(step, nil)
	}
	var list []string
	for ; low <= high; low += by {
		list = append(list, strconv.Itoa(low%7+1))
	}
	return strings.Join(list, ",")
}

// split makes an expression of each item for days that a month places and one of all others, for each of the two
// fields, and says how the fields combine.
func (e expression) split(none string, weekday func(string) string) string {
	var lists [2]string
	for i, at := range []int{3, 5} {
		if open(e.fields[at]) && (at == 5 || !open(e.fields[5])) {
			continue
		}
		var plain, all []string
		for item := range strings.SplitSeq(e.fields[at], ",") {
			to := &plain
			if placed.MatchString(item) {
				to = &all
			}
			if at == 5 {
				item = weekday(item)
			}
			*to = append(*to, item)
		}
		if plain != nil {
			all = append(all, strings.Join(plain, ","))
		}
		for n, days := range all {
			f := slices.Clone(e.fields)
			f[3], f[5] = none, none
			f[at] = days
			all[n] = strings.Join(f, " ")
		}
		lists[i] = strings.Join(all, "|")
	}
	how := "or"
	if lists[0] != "" && lists[1] != "" && (starred(e.fields[3]) || starred(e.fields[5])) {
		how = "and"
	}
	return how + "\t" + lists[0] + "\t" + lists[1]
}

// each translates each item of a field.
func each(field string, item func(string) string) string {
	items := strings.Split(field, ",")
	for i, text := range items {
		items[i] = item(text)
	}
	return strings.Join(items, ",")
}

// number returns a value that may be written as a name.
func number(value string, names []string) int {
	if i := slices.Index(names, value); i >= 0 {
		return i
	}
	n, _ := strconv.Atoi(value)
	return n
}
