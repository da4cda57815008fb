package sizing

// Point is a measured load: the throughput per second and the processor time that it took, in cores.
type Point struct {
	Rate, Transactions float64
	Service, Broker    float64
}

// fitRounds is the number of iterations of a fit: three unknowns have settled long before. leastFit is the smallest
// result of a fit, because a file of constants has none that are 0.
const fitRounds, leastFit = 20_000, 0.001

// Fit sets the constants of processor time so that they explain the points best: the squares of the relative errors are
// least, and nothing costs less than leastFit. There should be points with the same rate and different numbers of
// transactions, and the other way round. Constants of brokers stay as they are if their time is not known, which is 0.
func (c *Constants) Fit(points []Point) {
	set := func(cores func(p Point) float64, timer, transaction, base *float64) {
		var rows [][3]float64
		for _, p := range points {
			n := cores(p)
			if n <= 0 {
				return
			}
			rows = append(rows, [3]float64{p.Rate / n, p.Transactions / n, 1 / n})
		}
		x := fit(rows)
		*timer, *transaction, *base = max(leastFit, x[0]*1e6), max(leastFit, x[1]*1e3), max(leastFit, x[2])
	}
	set(func(p Point) float64 { return p.Service }, &c.ServiceTimer, &c.ServiceTransaction, &c.ServiceBase)
	set(func(p Point) float64 { return p.Broker }, &c.BrokerTimer, &c.BrokerTransaction, &c.BrokerBase)
}

// fit returns the x, with no negative element, with the least sum of (row·x - 1)²: coordinate by coordinate,
// repeatedly. The sum is convex, so this ends at its minimum.
func fit(rows [][3]float64) (x [3]float64) {
	for range fitRounds {
		for i := range x {
			gradient, square := 0.0, 0.0
			for _, row := range rows {
				gradient += row[i] * (row[0]*x[0] + row[1]*x[1] + row[2]*x[2] - 1)
				square += row[i] * row[i]
			}
			if square > 0 {
				x[i] = max(0, x[i]-gradient/square)
			}
		}
	}
	return x
}
