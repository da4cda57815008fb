// Package scaling tests the chart's autoscaling with the programs that do it in a cluster: Kubernetes' own
// HorizontalPodAutoscaler controller, Prometheus and, with the build tag keda, KEDA's own scale loop and scalers. The
// numbers are those of the ScaledObject that the chart renders. It is a module of its own, because they are large and
// the service needs none of them.
//
//	TestScaling, TestScalingAhead, TestPrometheusIsAway   the controller in virtual time, over a model of instances
//	TestInstances                                         the controller over real instances and Kafka, ten times as fast
//	TestScalers (-tags keda)                              KEDA's scalers with a real group
//	TestFallback (-tags keda)                             KEDA's behaviour without data in Prometheus
//	exporter                                              the queries of an exporter of lag to a real group
//
// There is no cluster: a stand-in for the API server holds one HorizontalPodAutoscaler and one number, and the "pods"
// of TestInstances are processes.
package scaling
