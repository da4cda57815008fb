// Package scaling tests the chart's autoscaling with the programs that do it in a cluster: Kubernetes' own
// HorizontalPodAutoscaler controller, Prometheus and, with the build tag keda, KEDA's own scale loop and scalers. The
// numbers are those of the ScaledObject that the chart renders. It is a module of its own, since they are large and the
// service needs none of them.
//
//	TestScaling, TestScalingAhead, TestPrometheusIsAway   the controller in virtual time, over a model of instances
//	TestInstances                                         the controller over real instances, real Prometheus and Kafka, in a tenth of the time
//	TestScalers (-tags keda)                              what KEDA's scalers say of a real group
//	TestFallback (-tags keda)                             what KEDA says when Prometheus knows nothing
//	exporter                                              what an exporter of lag asks of a real group
//
// There is no cluster: a stand-in for the API server holds one HorizontalPodAutoscaler and one number, and the "pods"
// of TestInstances are processes.
package scaling
