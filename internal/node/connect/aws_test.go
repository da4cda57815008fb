package connect

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/node/config"
)

const (
	awsBroker = "b-1.cluster.kafka.eu-west-1.amazonaws.com:9098"
	awsRoleID = "arn:aws:iam::123456789012:role/waterclock"
)

// awsEnvironment gives this process the environment of a pod whose service account has a role, and an STS on this
// machine.
func awsEnvironment(t *testing.T, token, sts string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-west-1", "AWS_MAX_ATTEMPTS": "1",
		"AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none",
		"AWS_ENDPOINT_URL_STS": sts, "AWS_WEB_IDENTITY_TOKEN_FILE": token,
	} {
		t.Setenv(name, value)
	}
	if token != "" {
		t.Setenv("AWS_ROLE_ARN", awsRoleID)
	}
}

// TestAWSRole logs in by web identity at an STS of this machine: with the token of the file as it is then, with
// credentials that are kept while they are good, and replaced before they end.
func TestAWSRole(t *testing.T) {
	var asked atomic.Int64
	var lasts atomic.Int64
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("RoleArn") != awsRoleID {
			t.Errorf("STS is asked %v", r.Form)
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA%d</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>session of %s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>`, n, r.FormValue("WebIdentityToken"),
			time.Now().Add(time.Duration(lasts.Load())).UTC().Format(time.RFC3339))
	}))
	defer sts.Close()
	token := secretFile(t, "first")
	awsEnvironment(t, token, sts.URL)
	mech, err := mechanism(&config.Config{TLS: true, SASLMechanism: config.SASLAWS})
	if err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("STS was asked %d times before the first login", n)
	}
	// The broker gets the key and the session in a signed message.
	wantLogin := func(key, session string) {
		t.Helper()
		_, message, err := mech.Authenticate(t.Context(), awsBroker)
		if err != nil {
			t.Fatal(err)
		}
		var said map[string]string
		if err := json.Unmarshal(message, &said); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(said["x-amz-credential"], key+"/") || said["x-amz-security-token"] != session {
			t.Errorf("the login is %s, want %s with %q", message, key, session)
		}
	}
	lasts.Store(int64(awsRefresh - time.Second)) // too short to be kept
	wantLogin("ASIA1", "session of first")
	if err := os.WriteFile(token, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	lasts.Store(int64(time.Hour))
	wantLogin("ASIA2", "session of second")
	wantLogin("ASIA2", "session of second")
	if n := asked.Load(); n != 2 {
		t.Errorf("STS was asked %d times, want 2", n)
	}
}

// TestNoAWSRole checks the messages if there is no role, or none for this process.
func TestNoAWSRole(t *testing.T) {
	denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>`+
			`<Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>`)
	}))
	defer denies.Close()
	away := httptest.NewServer(nil)
	away.Close()
	token := secretFile(t, "token")
	agent := httptest.NewServer(http.NotFoundHandler())
	defer agent.Close()
	cannot := "the AWS credentials of the role " + awsRoleID + " cannot be fetched: "
	for _, c := range []struct{ name, token, sts, want string }{
		{"no role", "", "", "there are no AWS credentials for AWS_MSK_IAM: give the service account or the machine"},
		{"denied", token, denies.URL, "AWS refuses the credentials of the role " + awsRoleID + " (AccessDenied: Not"},
		{"no STS", token, away.URL, cannot + "dial tcp " + strings.TrimPrefix(away.URL, "http://") + ": connect: "},
		{"no agent", "", "", "AWS refuses the credentials of the agent at " + agent.URL},
		{"no token", token + ".none", denies.URL, cannot + "unable to read file at " + token + ".none: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			awsEnvironment(t, c.token, c.sts)
			if c.name == "no agent" {
				t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL)
			}
			cfg := config.Config{TLS: true, SASLMechanism: config.SASLAWS}
			mech, err := mechanism(&cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = mech.Authenticate(t.Context(), awsBroker)
			if got := Refusal(&cfg, fmt.Errorf("wrapped: %w", err)); !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// An STS that takes a call and never answers does not keep later logins from asking again.
func TestAWSRoleOfAHangingSTS(t *testing.T) {
	var asked atomic.Int64
	over := make(chan struct{})
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			<-over
			w.WriteHeader(http.StatusServiceUnavailable) // an empty answer makes the SDK panic
			return
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
<SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer sts.Close()
	defer close(over)
	awsEnvironment(t, secretFile(t, "token"), sts.URL)
	cfg := config.Config{TLS: true, SASLMechanism: config.SASLAWS}
	mech, err := mechanism(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, _, err := mech.Authenticate(ctx, awsBroker)
		late := ctx.Err() != nil
		cancel()
		if err == nil {
			return
		}
		if says := Refusal(&cfg, err); late || time.Now().After(end) || !strings.Contains(says, "cannot be fetched") {
			t.Fatalf("%s, after %d calls", says, asked.Load())
		}
	}
}
