package service

import (
	"context"
	"net/http"
	"sync"

	"github.com/waterclock/waterclock/internal/api/console"
)

// withConsole puts the console before the API, where it is wanted. What it returns ends it.
func withConsole(in *instance, api http.Handler) (h http.Handler, stop func()) {
	if !in.cfg.Console {
		return api, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	history := console.NewHistory(in.registry, in.log)
	running.Go(func() { history.Run(ctx) })
	return console.New(console.Options{API: api, History: history, Logger: in.log, Now: in.o.Now}), func() {
		cancel()
		running.Wait()
	}
}
