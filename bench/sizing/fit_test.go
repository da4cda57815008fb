package sizing

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// What follows the law is explained by the law's constants, whatever they are; with noise, nearly.
func TestFitFindsTheLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		law := Constants{
			ServiceTimer:       rapid.Float64Range(1, 50).Draw(t, "service, timer"),
			BrokerTimer:        rapid.Float64Range(1, 50).Draw(t, "broker, timer"),
			ServiceTransaction: rapid.Float64Range(0.5, 10).Draw(t, "service, transaction"),
			BrokerTransaction:  rapid.Float64Range(0.5, 20).Draw(t, "broker, transaction"),
			ServiceBase:        rapid.Float64Range(0.01, 0.3).Draw(t, "service, base"),
			BrokerBase:         rapid.Float64Range(0.01, 0.3).Draw(t, "broker, base"),
		}
		noise := rapid.SampledFrom([]float64{0, 0.02}).Draw(t, "noise")
		var points []Point
		for _, rate := range []float64{1_000, 5_000, 20_000} {
			for _, transactions := range []float64{10, 48} {
				cores := func(timer, transaction, base float64) float64 {
					return (base + (rate*timer+transactions*transaction*1000)/1e6) *
						(1 + noise*rapid.Float64Range(-1, 1).Draw(t, "error"))
				}
				points = append(
					points, Point{rate, transactions, cores(law.ServiceTimer, law.ServiceTransaction, law.ServiceBase),
						cores(law.BrokerTimer, law.BrokerTransaction, law.BrokerBase)})
			}
		}
		var got Constants
		got.Fit(points)
		for _, p := range points {
			service := got.ServiceBase + (p.Rate*got.ServiceTimer+p.Transactions*got.ServiceTransaction*1000)/1e6
			broker := got.BrokerBase + (p.Rate*got.BrokerTimer+p.Transactions*got.BrokerTransaction*1000)/1e6
			if off := max(math.Abs(service/p.Service-1), math.Abs(broker/p.Broker-1)); off > 0.001+3*noise {
				t.Fatalf("%+v: off by %.3f\n%+v\n%+v", p, off, law, got)
			}
		}
	})
}

// Brokers that nobody has measured keep their constants, and noise makes nothing negative.
func TestFitOfPoorPoints(t *testing.T) {
	c := Measured()
	c.Fit([]Point{{1_000, 10, 0.5, 0}, {1_000, 50, 0.4, 0}, {20_000, 50, 0.45, 0}})
	if c.BrokerTimer != 7 || c.BrokerTransaction != 5.3 || c.BrokerBase != 0.1 {
		t.Errorf("%+v", c)
	}
	if c.ServiceTimer < 0 || c.ServiceTransaction < 0 || c.ServiceBase < 0.3 {
		t.Errorf("%+v", c)
	}
}
