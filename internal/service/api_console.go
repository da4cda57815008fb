package service

import (
	"context"
	"net/http"
	"sync"

	"github.com/waterclock/waterclock/internal/api/console"
	"github.com/waterclock/waterclock/internal/recent"
)

// remember begins to remember what the instance does, for the API and the console. What it
// returns ends it.
func (in *instance) remember() (h *recent.History, stop func()) {
	h = recent.New(in.registry, in.log)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	return h, func() {
		cancel()
		running.Wait()
	}
}

// withConsole puts the console before the API, where it is wanted.
func withConsole(in *instance, api http.Handler, h *recent.History) http.Handler {
	if !in.cfg.Console {
		return api
	}
	return console.New(console.Options{API: api, History: h, Logger: in.log, Now: in.o.Now})
}
