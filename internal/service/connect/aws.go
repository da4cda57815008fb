package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
)

// awsRefresh is how long before their end the credentials of a role are replaced.
const awsRefresh = 5 * time.Minute

// awsTimeout bounds one call of AWS. The SDK has no limit of its own, and all logins wait for the same call.
const awsTimeout = 5 * time.Second

// awsRole returns how to log in to Amazon MSK with the role that AWS gives this process: by the web identity of a
// Kubernetes service account, by EKS Pod Identity, or as a container's or a machine's. AWS's SDK finds it, as in every
// other program. All clients of an instance share the credentials, which are fetched at the first login and replaced
// before they end.
func awsRole() (sasl.Mechanism, error) {
	found, err := awsconfig.LoadDefaultConfig(context.Background(),
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(awsTimeout)),
		awsconfig.WithCredentialsCacheOptions(func(o *awssdk.CredentialsCacheOptions) { o.ExpiryWindow = awsRefresh }))
	if err != nil {
		return nil, &localError{fmt.Errorf("the settings of AWS cannot be read: %w", innermost(err))}
	}
	return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
		c, err := found.Credentials.Retrieve(ctx)
		if err != nil {
			return aws.Auth{}, &localError{noRole(err)}
		}
		return aws.Auth{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken}, nil
	}), nil
}

// noRole says in a sentence why there are no credentials of a role, and what to do.
func noRole(err error) error {
	var source string
	if role := os.Getenv("AWS_ROLE_ARN"); role != "" {
		source = "the role " + role
	} else if agent := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"); agent != "" {
		source = "the agent at " + agent
	} else {
		return fmt.Errorf("there are no AWS credentials for AWS_MSK_IAM: give the service account or the machine a "+
			"role, or set sasl-username and sasl-password-file (%w)", innermost(err))
	}
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("AWS refuses the credentials of %s (%s: %s): the role's trust policy has to name this "+
			"service account", source, refused.ErrorCode(), refused.ErrorMessage())
	}
	return fmt.Errorf("the AWS credentials of %s cannot be fetched: %w", source, innermost(err))
}

// innermost returns the cause of an error of AWS's SDK, which wraps it in one text for each of its layers.
func innermost(err error) error {
	var network *net.OpError // which has the address
	if errors.As(err, &network) {
		return network
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
