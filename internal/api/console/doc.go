// Package console makes the HTTP API usable in a browser. Its pages load nothing from other hosts, and need a script
// only to refresh themselves.
//
// All its data come from the API. Each page calls the API's handler in the context of the page's
// request, so with the rights of its caller. Rights, validation, routing and wording are the
// API's, and a program can do everything that the console can. The only exception is what
// package recent remembers of this process.
//
// It stands behind the same guard as the API (package access). Everything that a page shows may have been
// written by an attacker. html/template escapes IDs, headers, payloads and details. A character that
// does not print, or that changes the direction of text, is shown as its code ([visible]). Commands to be copied have
// no such character at all. Links name timers in the query and never in the path, because browsers change paths
// ("..", "//") and cannot write all bytes in forms.
//
// A page must not look newer than it is. Its script asks for it again every few seconds, and says so if it gets no
// answer. Times are in the zone that a cookie names ([clock]).
//
// Every change is a POST, from a page that asks for confirmation or from a form. A form that
// steers or cancels a timer carries the source of the timer that was shown, so it does not
// change a timer that has replaced it meanwhile.
package console
