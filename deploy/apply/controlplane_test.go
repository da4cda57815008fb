package apply

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// limit is how long the control plane may take for anything, on a machine that is busy with other things.
const limit = 3 * time.Minute

const kubeconfig = `
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: "%s"}}]
users: [{name: test, user: {token: "%s"}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`

// A controlPlane is an API server on loopback, with its store and its controllers.
type controlPlane struct {
	kube    kubernetes.Interface
	objects dynamic.Interface
	mapper  meta.ResettableRESTMapper

	mu     sync.Mutex
	warned []string // since warnings was called; guarded by mu
}

// programs returns a directory in the user's cache with the programs. Go's own cache drops what has not
// been used for five days, and they take long to compile.
func programs(t *testing.T) string {
	t.Helper()
	modules := readFile(t, "controlplane/go.mod")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	tools, sum := filepath.Join(cache, "waterclock", "tools"), sha256.Sum256([]byte(modules))
	dir := filepath.Join(tools, "kubernetes-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	made, start := dir+".new", time.Now() // what is there is complete
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "controlplane", "-trimpath", "-ldflags=-s -w", "-o",
		made+"/", "tool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the control plane: %v\n%s", err, out)
	}
	t.Logf("built the control plane in %s", time.Since(start).Round(time.Second))
	if err := os.Rename(made, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a program until the test ends, and shows the end of its log if the test has failed.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &log, &log
	p, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.Alive() {
			t.Errorf("%s ended: %v", filepath.Base(program), p.Wait())
		}
		_ = p.Signal(syscall.SIGKILL)
		_ = p.Wait()
		if t.Failed() {
			t.Logf("%s: … %s", filepath.Base(program), log.Bytes()[max(0, log.Len()-4000):])
		}
	})
}

// startControlPlane starts one, which ends with the test.
func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	bin, dir := programs(t), t.TempDir()
	addrs, err := localkafka.FreeAddrs(3)
	if err != nil {
		t.Fatal(err)
	}
	store, peers, server := "http://"+addrs[0], "http://"+addrs[1], addrs[2]
	_, port, _ := net.SplitHostPort(server)
	file := func(name string) string { return filepath.Join(dir, name) }
	// The server makes the certificate.
	token, certificate, key := rand.Text(), file("apiserver.crt"), file("service-accounts.key")
	_, _, err1 := keyutil.LoadOrGenerateKeyFile(key)
	err2 := os.WriteFile(file("tokens"), []byte(token+",test,test,system:masters\n"), 0o600)
	err3 := os.WriteFile(file("kubeconfig"), fmt.Appendf(nil, kubeconfig, server, certificate, token), 0o600)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}

	run(t, filepath.Join(bin, "server"), "--data-dir="+file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+store, "--advertise-client-urls="+store,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	run(t, filepath.Join(bin, "kube-apiserver"), "--etcd-servers="+store, "--bind-address=127.0.0.1",
		"--secure-port="+port, "--cert-dir="+dir,
		// With --allow-privileged it is admission that refuses a privileged pod.
		"--token-auth-file="+file("tokens"), "--authorization-mode=RBAC", "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none")
	await.Until(t, limit, "the API server has a certificate", func() bool {
		_, err := os.Stat(certificate)
		return err == nil
	})
	p := connect(t, file("kubeconfig"))
	await.Until(t, limit, "the API server is ready", func() bool {
		return p.kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error() == nil
	})
	run(t, filepath.Join(bin, "kube-controller-manager"), "--kubeconfig="+file("kubeconfig"), "--secure-port=0",
		"--leader-elect=false",
		"--service-account-private-key-file="+key)
	return p
}

func connect(t *testing.T, kubeconfig string) *controlPlane {
	t.Helper()
	p := new(controlPlane)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, p
	var err1, err2 error
	p.kube, err1 = kubernetes.NewForConfig(config)
	p.objects, err2 = dynamic.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	p.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.kube.Discovery()))
	return p
}

// HandleWarningHeader notes what the API server warns of.
func (cp *controlPlane) HandleWarningHeader(_ int, _, text string) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.warned = append(cp.warned, text)
}

// warnings returns, as an error, what the API server has warned of since the last call.
func (cp *controlPlane) warnings() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	defer func() { cp.warned = nil }()
	if len(cp.warned) == 0 {
		return nil
	}
	return errors.New("warned: " + strings.Join(cp.warned, "; "))
}

// resource is where objects of this kind are. A kind that was defined a moment ago is waited for.
func (cp *controlPlane) resource(t *testing.T, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	kind := o.GroupVersionKind()
	var m *meta.RESTMapping
	await.Until(t, limit, kind.String()+" is a kind", func() bool {
		var err error
		if m, err = cp.mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			cp.mapper.Reset()
		}
		return err == nil
	})
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return cp.objects.Resource(m.Resource)
	}
	return cp.objects.Resource(m.Resource).Namespace(o.GetNamespace())
}

// apply does what Helm does, and kubectl apply --server-side --validate=strict. A warning is an error, although the
// object has been taken then.
func (cp *controlPlane) apply(t *testing.T, o *unstructured.Unstructured, manager string,
	dryRun ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	data, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.PatchOptions{FieldManager: manager, FieldValidation: metav1.FieldValidationStrict,
		Force: new(false), DryRun: dryRun}
	got, err := cp.resource(t, o).Patch(t.Context(), o.GetName(), types.ApplyPatchType, data, options)
	return got, errors.Join(err, cp.warnings())
}
