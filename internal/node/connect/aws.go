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

// awsRefresh is how long before they expire the credentials of a role are replaced.
const awsRefresh = 5 * time.Minute

// awsTimeout bounds one call of AWS. The SDK has no limit of its own, and all logins wait for the same call.
const awsTimeout = 5 * time.Second

// awsRole returns how to log in to Amazon MSK with the role that AWS gives this process: that of a Kubernetes service
// account (web identity, or EKS Pod Identity), of a container or of a machine. AWS's SDK finds it, as in every other
// program. All clients with the returned mechanism share the credentials. The SDK fetches them at the first login, and
// again at the first login after they are about to expire.
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

// noRole says why there are no credentials of a role, and what to do.
func noRole(err error) error {
	role, agent := os.Getenv("AWS_ROLE_ARN"), os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	source := "the role " + role
	switch {
	case role != "":
	case agent != "":
		source = "the agent at " + agent
	default:
		return fmt.Errorf("there are no AWS credentials for AWS_MSK_IAM: give the service account or the machine a "+
			"role, or set sasl-username and sasl-password-file (%w)", innermost(err))
	}
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("AWS refuses the credentials of %s (%s: %s): the role's trust policy has to name this "+
			"service account", source, refused.ErrorCode(), refused.ErrorMessage())
	}
	return fmt.Errorf("the AWS credentials of %s cannot be fetched: %w", source, innermost(err))
}

// innermost returns the cause of an error of AWS's SDK. Each layer of the SDK adds a text of its own.
func innermost(err error) error {
	if network, ok := errors.AsType[*net.OpError](err); ok { // it has the address
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
