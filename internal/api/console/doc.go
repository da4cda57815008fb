// Package console is the HTTP API for people. Its pages load nothing from
// elsewhere, and need a script only to refresh themselves.
//
// It knows only what the API says. Each page calls the API's own handler, in the
// context of the page's request and so in the name of its caller. Rights, validation, routing
// and wording are the API's, and a program can do everything that the console can. The one
// exception is what package recent remembers of this process.
//
// It stands behind the same guard as the API (package access). Everything that a page shows may have been
// written by an attacker. html/template escapes IDs, headers, payloads and details, and a character that
// does not print, or that turns the direction of writing, is
// shown as its code ([visible]). Links name timers in the query and never in the path, because
// browsers change paths ("..", "//") and cannot write all bytes in forms.
//
// Every change is a POST, after a page that asks or a form that was filled in. A form that
// steers or cancels a timer carries the source of the timer that was shown, so a timer that has
// replaced it meanwhile is left alone.
package console
