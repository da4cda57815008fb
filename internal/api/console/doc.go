// Package console is the HTTP API for people: pages that are made here and need nothing from
// elsewhere, no script either but to show what is new by itself.
//
// It knows nothing that the API does not say. Each page asks the API's own handler, in the
// context of the page's request and so in the name of its caller: rights, judgement, routing
// and wording are the API's, and what the console can do a program can do too. The one
// exception is what package recent remembers of this process.
//
// It stands behind the same guard as the API (package access). All that a page shows was
// written by somebody who need not be a friend: IDs, headers, payloads and details are
// escaped by html/template, and what does not print, or turns the direction of writing, is
// shown as its code ([visible]). Links name timers in the query and never in the path, for
// browsers change paths ("..", "//") and cannot write all bytes in forms.
//
// What changes something is a POST, behind a page that asks, or a form that was filled in. What
// steers or cancels a timer carries the source of the one that was shown, so that what has become
// another one meanwhile is left alone.
package console
