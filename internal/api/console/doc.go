// Package console makes the HTTP API usable in a browser.
//
//	handler := guard.Wrap(console.New(console.Options{API: api, Logger: log}))
//
// Its pages load nothing from other hosts, and need a script only to refresh themselves.
//
// All its data come from the API. Each page calls the API's handler in the context of the page's request, so with the
// rights of its caller. Rights, validation, routing and wording are the API's, and a program can do everything that
// the console can. The only exception is the history of this process in package recent.
//
// It stands behind the same guard as the API (package access). Everything on a page may have been written by an
// attacker. html/template escapes IDs, headers, payloads and details. A character that does not print, or that
// changes the direction of text, is shown as its code ([visible]). Commands to be copied have no such character at
// all. Links name timers in the query and never in the path, because browsers change paths ("..", "//") and cannot
// write all bytes in forms.
//
// A page must not look newer than it is. Its script refreshes it every few seconds, and shows when it gets no
// response. Times are in the zone of a cookie ([clock]).
//
// Every change is a POST, from a page that asks for confirmation or from a form. A form that steers or cancels a
// timer carries the source of the timer that was shown, so it does not change a newer timer of the same ID.
package console
