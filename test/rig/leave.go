package rig

import (
	"context"
	"net/http"

	"github.com/waterclock/waterclock/internal/node/ops"
)

// Leave has the instance at addr with the data directory hand over and leave, and returns the status of its answer.
func Leave(ctx context.Context, addr, dataDir, within string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/leave?within="+within, nil)
	if err == nil {
		err = ops.AddToken(req, dataDir)
	}
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
