package scaling

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	defaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

const namespace = "waterclock"

// What kube-controller-manager does unless it is told otherwise.
const (
	syncPeriod             = 15 * time.Second
	tolerance              = 0.1
	downscaleStabilization = 5 * time.Minute
)

// A workload is a StatefulSet's scale subresource. It implements scale.ScalesGetter.
type workload struct {
	scale.ScaleInterface // Patch, which the controller does not use

	mu      sync.Mutex
	n       int32 // guarded by mu
	changes []change
}

// change is one of the number of instances.
type change struct {
	at       time.Time
	from, to int32
}

func (w *workload) replicas() int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *workload) history() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

func (w *workload) Scales(string) scale.ScaleInterface { return w }

// Get counts pods that are starting, as a StatefulSet does, but none that are stopping.
func (w *workload) Get(_ context.Context, _ schema.GroupResource, name string,
	_ metav1.GetOptions) (*autoscalingv1.Scale, error) {
	n := w.replicas()
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: n},
		Status:     autoscalingv1.ScaleStatus{Replicas: n, Selector: "app.kubernetes.io/name=waterclock"},
	}, nil
}

func (w *workload) Update(_ context.Context, _ schema.GroupResource, to *autoscalingv1.Scale,
	_ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, change{time.Now(), w.n, to.Spec.Replicas})
	w.n = to.Spec.Replicas
	return to, nil
}

// answers implements metrics.MetricsClient. It is what KEDA's metrics server would answer.
type answers struct {
	metrics.MetricsClient // metrics of other kinds, which KEDA does not make
	of                    func(metric string) (float64, error)
}

func (a answers) GetExternalMetric(metric, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	v, err := a.of(metric)
	return []int64{int64(v * 1000)}, time.Now(), err
}

// shelf is an informer over objects that are there from the beginning and never change.
type shelf struct {
	cache.SharedIndexInformer
	objects cache.Indexer
}

func newShelf(objects ...any) shelf {
	s := shelf{objects: cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	for _, o := range objects {
		if err := s.objects.Add(o); err != nil {
			panic(err)
		}
	}
	return s
}

func (s shelf) Informer() cache.SharedIndexInformer { return s }
func (s shelf) HasSynced() bool                     { return true }
func (s shelf) GetStore() cache.Store               { return s.objects }
func (s shelf) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	for _, o := range s.objects.List() {
		h.OnAdd(o, true)
	}
	return nil, nil
}

type hpaShelf struct{ shelf }

func (hs hpaShelf) Lister() autoscalinglisters.HorizontalPodAutoscalerLister {
	return autoscalinglisters.NewHorizontalPodAutoscalerLister(hs.objects)
}

type podShelf struct{ shelf }

func (ps podShelf) Lister() corelisters.PodLister { return corelisters.NewPodLister(ps.objects) }

// statuses takes what the controller writes of its HorizontalPodAutoscaler. Nothing that it decides depends on that.
type statuses struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
}

func (s statuses) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return s
}

func (s statuses) UpdateStatus(_ context.Context, hpa *autoscaling.HorizontalPodAutoscaler,
	_ metav1.UpdateOptions) (*autoscaling.HorizontalPodAutoscaler, error) {
	return hpa, nil
}

// events passes on what the controller says that it did.
type events struct {
	coreclient.EventInterface
	tell func(*corev1.Event)
}

func (e events) Events(string) coreclient.EventInterface { return e }
func (e events) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	e.tell(event)
	return event, nil
}
func (e events) PatchWithEventNamespace(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	e.tell(event)
	return event, nil
}

// specs are the metrics of a HorizontalPodAutoscaler, as KEDA derives them from triggers of type prometheus.
func specs(t *testing.T, o *scaledObject) (all []autoscaling.MetricSpec) {
	t.Helper()
	for i, trigger := range o.Spec.Triggers {
		threshold, err := resource.ParseQuantity(trigger.Metadata["threshold"])
		if err != nil || trigger.Type != "prometheus" || trigger.MetricType != autoscaling.AverageValueMetricType {
			t.Fatalf("trigger %+v: %v", trigger, err)
		}
		all = append(all, autoscaling.MetricSpec{Type: autoscaling.ExternalMetricSourceType,
			External: &autoscaling.ExternalMetricSource{
				Metric: autoscaling.MetricIdentifier{Name: trigger.metric(i)},
				Target: autoscaling.MetricTarget{Type: trigger.MetricType, AverageValue: &threshold},
			}})
	}
	return all
}

// autoscale runs Kubernetes' own controller over a workload, with the HorizontalPodAutoscaler that KEDA makes of a
// ScaledObject, until ctx ends and stop was called.
func autoscale(ctx context.Context, o *scaledObject, wanted []autoscaling.MetricSpec, w *workload, period time.Duration,
	ask func(metric string) (float64, error), tell func(*corev1.Event)) (stop func()) {
	hpa := &autoscaling.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "keda-hpa-waterclock", Namespace: namespace, ResourceVersion: "1"},
		Spec: autoscaling.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: o.Spec.ScaleTargetRef, MinReplicas: &o.Spec.MinReplicaCount,
			MaxReplicas: o.Spec.MaxReplicaCount,
			Metrics:     wanted, Behavior: o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior,
		},
	}
	defaults.SetDefaults_HorizontalPodAutoscaler(hpa)
	kinds := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
	kinds.Add(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), meta.RESTScopeNamespace)

	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	controller := podautoscaler.NewHorizontalController(ctx, events{tell: tell}, w, statuses{}, kinds, answers{of: ask},
		// The zeroes are for metrics of pods.
		hpaShelf{newShelf(hpa)}, podShelf{newShelf()}, period, downscaleStabilization, tolerance, 0, 0)
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx, 1) })
	return func() {
		cancel()
		running.Wait()
	}
}
