package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// surroundings are what the values expect to exist, in a namespace that admits only restricted pods.
const surroundings = `
apiVersion: v1
kind: Namespace
metadata:
  name: NAMESPACE
  labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
`

// An installation is a release in the cluster.
type installation struct {
	*controlPlane
	release
	docs []*unstructured.Unstructured
}

// TestApply installs, upgrades, scales and deletes the chart with each set of values that deploy/check has.
func TestApply(t *testing.T) {
	p := startControlPlane(t)
	p.mustApply(t, definitions(t))
	for _, r := range []release{
		{"waterclock", "waterclock", "../kubernetes/values.yaml", "waterclock", 3, "20Gi"},
		// The chart scales it, but no autoscaler runs here.
		{"timers", "shop", chartDir + "/ci/full-values.yaml", "timers-waterclock", 1, "100Gi"},
		{"waterclock", "dev", chartDir + "/ci/least-values.yaml", "waterclock", 3, ""},
	} {
		t.Run(r.namespace, func(t *testing.T) {
			i := &installation{p, r, r.render(t, nil)}
			docs := i.docs
			if r.namespace == "waterclock" {
				docs = documents(t, readFile(t, "../kubernetes/waterclock.yaml")) // what the chart makes comes second
			}
			i.install(t, docs)
			i.evict(t)
			i.applyAgain(t)
			i.refuse(t)
			if r.namespace == "waterclock" {
				i.upgrade(t)
				i.rollBack(t)
			}
			i.upgradeUnready(t)
			i.autoscale(t, 4)
			i.autoscale(t, 2)
			i.delete(t)
			i.checkClaims(t, 4)
		})
	}
}

// mustApply applies objects. None may be refused, or warned of.
func (cp *controlPlane) mustApply(t *testing.T, docs []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range docs {
		if _, err := cp.apply(t, o, "helm"); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func (i *installation) statefulSet(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	set, err := i.kube.AppsV1().StatefulSets(i.namespace).Get(t.Context(), i.set, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (i *installation) allPods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := i.kube.CoreV1().Pods(i.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (i *installation) awaitPods(t *testing.T, n int) {
	t.Helper()
	await.Until(t, limit, fmt.Sprintf("there are %d pods", n), func() bool { return len(i.allPods(t)) == n })
}

// kubelet reports all pods as running, and as ready or not. It returns how many had been reported like that before.
func (i *installation) kubelet(t *testing.T, ready corev1.ConditionStatus) (were int) {
	t.Helper()
	for _, pod := range i.allPods(t) {
		if c := pod.Status.Conditions; len(c) == 1 && c[0].Status == ready {
			were++
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready,
			LastTransitionTime: metav1.Now()}}
		_, err := i.kube.CoreV1().Pods(i.namespace).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	return were
}

// install applies everything. Although none becomes ready, all pods are created. Admission lets them pass, and gives
// them no token.
func (i *installation) install(t *testing.T, docs []*unstructured.Unstructured) {
	t.Helper()
	i.mustApply(t, documents(t, strings.ReplaceAll(surroundings, "NAMESPACE", i.namespace)))
	i.mustApply(t, docs)
	i.awaitPods(t, i.pods)
	for _, pod := range i.allPods(t) {
		if slices.ContainsFunc(pod.Spec.Volumes,
			func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access") }) {
			t.Errorf("%s has a token", pod.Name)
		}
	}
	i.checkClaims(t, i.pods)
}

func (i *installation) checkClaims(t *testing.T, pods int) {
	t.Helper()
	list, err := i.kube.CoreV1().PersistentVolumeClaims(i.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for _, c := range list.Items {
		have = append(have, fmt.Sprint(c.Name, " ", c.Spec.Resources.Requests.Storage()))
	}
	for n := 0; n < pods && i.size != ""; n++ {
		want = append(want, fmt.Sprintf("data-%s-%d %s", i.set, n, i.size))
	}
	if !slices.Equal(have, want) {
		t.Errorf("volume claims %q, want %q", have, want)
	}
}

// evict evicts pods, as draining a node does. The budget lets all pods go that are not ready, but only one that is
// ready.
func (i *installation) evict(t *testing.T) {
	t.Helper()
	for _, ready := range []bool{false, true} {
		status, healthy, allowed := corev1.ConditionFalse, 0, 0
		if ready {
			status, healthy, allowed = corev1.ConditionTrue, i.pods, 1
		}
		i.kubelet(t, status)
		await.Until(t, limit, fmt.Sprintf("the budget counts %d pods", healthy), func() bool {
			b, err := i.kube.PolicyV1().PodDisruptionBudgets(i.namespace).Get(t.Context(), i.set, metav1.GetOptions{})
			return err == nil && int(b.Status.ExpectedPods) == i.pods && int(b.Status.CurrentHealthy) == healthy &&
				int(b.Status.DisruptionsAllowed) == allowed
		})
		for n := range i.pods {
			pod := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", i.set, n), Namespace: i.namespace}
			err := i.kube.PolicyV1().Evictions(i.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: pod})
			if refused := ready && n > 0; err != nil && !refused || apierrors.IsTooManyRequests(err) != refused {
				t.Errorf("evict %s, ready %v: %v", pod.Name, ready, err)
			}
		}
		i.awaitPods(t, i.pods)
	}
}

// applyAgain applies the same: nobody fights with what the API server and the controllers have added.
func (i *installation) applyAgain(t *testing.T) {
	t.Helper()
	await.Until(t, limit, "all pods are available", func() bool {
		return i.kubelet(t, corev1.ConditionTrue) == i.pods && int(i.statefulSet(t).Status.AvailableReplicas) == i.pods
	})
	for _, o := range i.docs {
		before, err := i.resource(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		after, err := i.apply(t, o, "helm")
		if err != nil || before.GetResourceVersion() != after.GetResourceVersion() {
			t.Errorf("%s %s was changed when it was applied again: %v\n%v\n%v", o.GetKind(), o.GetName(), err,
				before, after)
		}
	}
}

// autoscale changes the number of pods as a HorizontalPodAutoscaler does. The upgrade that follows leaves it alone,
// even the one that turns autoscaling on. Without a change by somebody else before, that one would make it 1.
func (i *installation) autoscale(t *testing.T, pods int) {
	t.Helper()
	i.pods, i.docs = pods, i.render(t, func(values map[string]any) {
		values["autoscaling"] = map[string]any{"enabled": true, "prometheus": "http://prometheus", "max": 12}
	})
	sets := i.kube.AppsV1().StatefulSets(i.namespace)
	scale, err := sets.GetScale(t.Context(), i.set, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = int32(pods)
	if _, err := sets.UpdateScale(t.Context(), i.set, scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.awaitPods(t, pods)
	i.mustApply(t, i.docs)
	if got := int(*i.statefulSet(t).Spec.Replicas); got != pods {
		t.Errorf("%d replicas after an upgrade, want %d", got, pods)
	}
}

// refuse plants mistakes, one at a time. What passes would mean nothing if they passed too.
func (i *installation) refuse(t *testing.T) {
	t.Helper()
	set := find(i.docs, "StatefulSet")
	var pod *unstructured.Unstructured // with claims it would lack their volumes
	if spec, _, _ := unstructured.NestedMap(set.Object, "spec", "template", "spec"); i.size == "" {
		pod = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
		pod.SetName("planted")
		pod.SetNamespace(i.namespace)
		if _, err := i.apply(t, pod, "helm", metav1.DryRunAll); err != nil {
			t.Errorf("a pod like those of the StatefulSet: %v", err)
		}
	}
	seldom := []any{map[string]any{"port": "http", "interval": "seldom"}}
	larger := []any{map[string]any{"metadata": map[string]any{"name": "data"}, "spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"},
		"resources":   map[string]any{"requests": map[string]any{"storage": "1Ti"}},
	}}}
	privileged := []any{map[string]any{"name": "a", "image": "a",
		"securityContext": map[string]any{"privileged": true}}}
	for _, c := range []struct {
		object  *unstructured.Unstructured // nil: the release has none
		field   string
		value   any
		manager string
		want    string
	}{
		{set, "spec unheardOf", "1", "helm", "unheardOf"},
		{set, "spec minReadySeconds", "some", "helm", "minReadySeconds"},
		{set, "spec volumeClaimTemplates", larger, "helm", "volumeClaimTemplates"},
		{set, "spec minReadySeconds", int64(1), "other", "conflict"},
		{set, "spec template spec hostNetwork", true, "helm", "would violate PodSecurity"},
		{pod, "spec hostNetwork", true, "helm", "violates PodSecurity"},
		{pod, "spec containers", privileged, "helm", "violates PodSecurity"},
		{find(i.docs, "ScaledObject"), "spec pollingInterval", "seldom", "helm", "pollingInterval"},
		{find(i.docs, "ScaledObject"), "spec triggers", []any{map[string]any{"type": "prometheus"}}, "helm",
			"metadata"},
		{find(i.docs, "PodMonitor"), "spec podMetricsEndpoints", seldom, "helm", "interval"},
		{find(i.docs, "ServiceMonitor"), "spec endpoints", seldom, "helm", "interval"},
	} {
		if c.object == nil {
			continue
		}
		o := c.object.DeepCopy()
		if err := unstructured.SetNestedField(o.Object, c.value, strings.Fields(c.field)...); err != nil {
			t.Fatal(err)
		}
		if _, err := i.apply(t, o, c.manager, metav1.DryRunAll); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of a %s: %v, want an error with %q", c.field, o.GetKind(), err, c.want)
		}
	}
}

// change applies the release with another setting, and waits until so many pods have it and ok is true.
func (i *installation) change(t *testing.T, level string, pods int, ok func(appsv1.StatefulSetStatus) bool) {
	t.Helper()
	i.mustApply(t, i.render(t, func(values map[string]any) { values["config"].(map[string]any)["log-level"] = level }))
	await.Until(t, limit, fmt.Sprintf("%d pods have the level %s", pods, level), func() bool {
		set := i.statefulSet(t)
		fine := ok(set.Status)
		return fine && set.Status.ObservedGeneration == set.Generation && int(set.Status.UpdatedReplicas) == pods
	})
}

func done(appsv1.StatefulSetStatus) bool { return true }

// upgrade replaces the pods one by one, each when the one before has been ready for minReadySeconds.
func (i *installation) upgrade(t *testing.T) {
	t.Helper()
	least := i.pods
	i.change(t, "debug", i.pods, func(s appsv1.StatefulSetStatus) bool {
		least = min(least, i.kubelet(t, corev1.ConditionTrue))
		return int(s.AvailableReplicas) == i.pods
	})
	if least < i.pods-1 {
		t.Errorf("only %d pods were ready during an upgrade", least)
	}
	pods := i.allPods(t) // by name; the last one was replaced first
	for n, pod := range pods[1:] {
		if after := pods[n].CreationTimestamp.Sub(pod.CreationTimestamp.Time); after < 15*time.Second {
			t.Errorf("%s followed %s after %s", pods[n].Name, pod.Name, after)
		}
	}
}

// rollBack undoes an upgrade whose first pod does not become ready, so that the others stay as they are.
func (i *installation) rollBack(t *testing.T) {
	t.Helper()
	before := i.allPods(t)
	i.change(t, "warn", 1, done)
	await.For(t, 20*time.Second)
	i.change(t, "debug", i.pods, done)
	for n, pod := range i.allPods(t) {
		if replaced := pod.UID != before[n].UID; replaced != (n == i.pods-1) {
			t.Errorf("%s was replaced: %v", pod.Name, replaced)
		}
	}
}

// upgradeUnready replaces pods of which none is ready, all at once since Kubernetes 1.37.
func (i *installation) upgradeUnready(t *testing.T) {
	t.Helper()
	i.kubelet(t, corev1.ConditionFalse)
	await.Until(t, limit, "no pod is ready", func() bool { return i.statefulSet(t).Status.ReadyReplicas == 0 })
	i.change(t, "error", i.pods, done)
}

// delete deletes everything.
func (i *installation) delete(t *testing.T) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	for _, o := range i.docs {
		if err := i.resource(t, o).Delete(
			t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Errorf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	i.awaitPods(t, 0)
}
