package api

import (
	"bytes"
	"encoding/json"
	"html/template"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// docsTemplate is the page of /docs. It has no script and loads nothing.
var docsTemplate = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>waterclock API</title><style>
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem;overflow-wrap:anywhere}
code{font:0.9em ui-monospace,monospace}summary{cursor:pointer}details{border-top:1px solid;padding:.5rem 0}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.2rem .5rem .2rem 0}
</style></head><body><main><h1>waterclock API</h1><p>{{.Description}}</p>
<p>For programs: <a href="/openapi.json">openapi.json</a>, <a href="/openapi.yaml">openapi.yaml</a> (OpenAPI 3.1).</p>
{{range .Operations}}<details><summary><code>{{.Method}} {{.Path}}</code> {{.Summary}}</summary>
{{with .Description}}<p>{{.}}</p>{{end}}
{{if .Parameters}}<table><thead><tr><th scope="col">Parameter</th><th scope="col">In</th><th scope="col">Meaning</th></tr></thead><tbody>
{{range .Parameters}}<tr><td><code>{{.Name}}</code></td><td>{{.In}}</td><td>{{.Description}}</td></tr>{{end}}</tbody></table>{{end}}
{{with .RequestBody}}<p>Body: {{range $type, $_ := .Content}}<code>{{$type}}</code> {{end}}</p>{{end}}
<table><thead><tr><th scope="col">Answer</th><th scope="col">Meaning</th></tr></thead><tbody>
{{range $status, $answer := .Responses}}<tr><td>{{$status}}</td><td>{{$answer.Description}}</td></tr>{{end}}</tbody></table></details>
{{end}}</main></body></html>
`))

// docsPage is the document for people.
func docsPage(o *huma.OpenAPI) []byte {
	var page bytes.Buffer
	err := docsTemplate.Execute(&page, map[string]any{"Description": o.Info.Description, "Operations": operations(o)})
	if err != nil {
		panic("the page of the API cannot be made: " + err.Error()) // it is the same in each process
	}
	return page.Bytes()
}

// serveDocument serves the OpenAPI document, which is complete by now.
func serveDocument(mux *http.ServeMux, o *huma.OpenAPI) {
	complete(o)
	asJSON, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		panic("the OpenAPI document cannot be encoded: " + err.Error()) // it is the same in each process
	}
	asYAML, err := o.YAML()
	if err != nil {
		panic("the OpenAPI document cannot be encoded: " + err.Error())
	}
	page := docsPage(o)
	for at, is := range map[string]struct {
		contentType string
		body        []byte
	}{
		"/openapi.json": {"application/openapi+json", asJSON},
		"/openapi.yaml": {"application/openapi+yaml", asYAML},
		"/docs":         {"text/html; charset=utf-8", page},
	} {
		mux.HandleFunc("GET "+at, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", is.contentType)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; "+
				"frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
			_, _ = w.Write(is.body) // the caller may be gone
		})
	}
}
