package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkWrap measures the cost that the guard adds to a call.
func BenchmarkWrap(b *testing.B) {
	o := options(b)
	o.AtOnce, o.Rate = 1000, 1_000_000
	g, _ := guard(b, o)
	h := g.Wrap(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { _ = May(r.Context(), Read, "orders", "1") }))
	for name, header := range map[string]string{"token": bearer("ops"), "password": basic("shop", password)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				asksOnce(h, header)
			}
		})
	}
}

func asksOnce(h http.Handler, header string) {
	r := httptest.NewRequest(http.MethodGet, "/v1/topics/orders/timers/1", nil)
	r.Header.Set("Authorization", header[len("Authorization: "):])
	h.ServeHTTP(httptest.NewRecorder(), r)
}
