// Package helm renders deploy/helm with Helm's own engine, compares each object with the types of Kubernetes, and runs
// leaf as the pods would. It is a module of its own, so that the product requires no module of Kubernetes.
package helm

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// objects are what the chart makes, of each kind.
type objects struct {
	config    core.ConfigMap
	pods      apps.StatefulSet
	services  []core.Service
	budget    policy.PodDisruptionBudget
	network   *networking.NetworkPolicy
	monitor   *monitoring.ServiceMonitor
	rule      *monitoring.PrometheusRule
	container core.Container // of pods
}

var load = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load("../../deploy/helm/leafbus") })

// render returns what the chart makes of values. A field that Kubernetes does not have is an error.
func render(values string) (o objects, err error) {
	chart, err := load()
	if err != nil {
		return o, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return o, err
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "ids", Namespace: "shop"}, nil)
	if err != nil {
		return o, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return o, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, text := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			err = errors.Join(err, o.add(text))
		}
	}
	if containers := o.pods.Spec.Template.Spec.Containers; len(containers) == 1 {
		o.container = containers[0]
	}
	return o, err
}

// add decodes one object.
func (o *objects) add(text string) error {
	var kind struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil || kind.Kind == "" {
		return err // a template that makes nothing
	}
	var into any
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ConfigMap":
		into = &o.config
	case "apps/v1 StatefulSet":
		into = &o.pods
	case "v1 Service":
		o.services = append(o.services, core.Service{})
		into = &o.services[len(o.services)-1]
	case "policy/v1 PodDisruptionBudget":
		into = &o.budget
	case "networking.k8s.io/v1 NetworkPolicy":
		o.network = new(networking.NetworkPolicy)
		into = o.network
	case "monitoring.coreos.com/v1 ServiceMonitor":
		o.monitor = new(monitoring.ServiceMonitor)
		into = o.monitor
	case "monitoring.coreos.com/v1 PrometheusRule":
		o.rule = new(monitoring.PrometheusRule)
		into = o.rule
	default:
		return errors.New("an object of unknown kind: " + kind.APIVersion + " " + kind.Kind)
	}
	bytes, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(bytes, into)
	return errors.Join(append(strict, err)...)
}

// rendered are the values of each kind of installation.
var rendered = map[string]string{
	"embedded": ``,
	"secured":  "{nats: {tlsSecretName: tls, users: true}, http: {tls: true}}",
	"alone":    "{replicas: 1}",
	"joined":   "{nats: {url: 'tls://nats:4222', tlsSecretName: ca}, settings: {tag: [order, 'coupon:100000']}}",
	"password": "{replicas: 2, nats: {url: 'nats://nats:4222', auth: password}, persistence: {enabled: false}}",
	"stores": `{mysql: {enabled: true}, zookeeper: {hosts: 'zk-0:2181,zk-1:2181'},
		nats: {url: 'nats://nats:4222', auth: creds}}`,
	"all": `{serviceMonitor: {enabled: true, labels: {release: p}}, prometheusRule: {enabled: true},
		tolerations: [{operator: Exists}], nodeSelector: {disk: ssd}, priorityClassName: high, podAnnotations: {a: b},
		imagePullSecrets: [{name: pull}], persistence: {storageClassName: fast},
		networkPolicy: {monitoring: [{namespaceSelector: {}}]}}`,
}

// Kubernetes knows all that the chart makes, and the parts fit together.
func TestChart(t *testing.T) {
	for name, values := range rendered {
		t.Run(name, func(t *testing.T) {
			o, err := render(values)
			if err != nil {
				t.Fatal(err)
			}
			labels, pod := o.pods.Spec.Template.Labels, o.pods.Spec.Template.Spec
			selectors := []map[string]string{o.pods.Spec.Selector.MatchLabels, o.budget.Spec.Selector.MatchLabels,
				o.network.Spec.PodSelector.MatchLabels}
			for _, spread := range pod.TopologySpreadConstraints {
				selectors = append(selectors, spread.LabelSelector.MatchLabels)
			}
			ports := make(map[string]bool)
			for _, port := range o.container.Ports {
				ports[port.Name] = true
			}
			for _, service := range o.services {
				selectors = append(selectors, service.Spec.Selector)
				for _, port := range service.Spec.Ports {
					if !ports[port.TargetPort.StrVal] {
						t.Errorf("service %s goes to port %s, which the container has not", service.Name, port.TargetPort.StrVal)
					}
				}
				if service.Name == o.pods.Spec.ServiceName && !service.Spec.PublishNotReadyAddresses {
					t.Error("servers that are not ready do not find each other, so none becomes ready")
				}
			}
			for _, selector := range selectors {
				for key, value := range selector {
					if labels[key] != value {
						t.Errorf("selector %v does not select pods with labels %v", selector, labels)
					}
				}
			}
			volumes := make(map[string]bool)
			for _, volume := range pod.Volumes {
				volumes[volume.Name] = true
			}
			for _, claim := range o.pods.Spec.VolumeClaimTemplates {
				volumes[claim.Name] = true
			}
			for _, mount := range o.container.VolumeMounts {
				if !volumes[mount.Name] {
					t.Errorf("volume %s is missing", mount.Name)
				}
			}
			if o.pods.Spec.PodManagementPolicy != apps.ParallelPodManagement {
				t.Error("the first of three waits for ever")
			}
		})
	}
}

// What the drain of leaf serve needs at most, and the wait before it, fit into the time that a pod has to end.
func TestTermination(t *testing.T) {
	for _, row := range []struct {
		values string
		want   int64
	}{{``, 180}, {"{waitSeconds: 300}", 360}, {"{replicas: 1}", 60}, {"{waitSeconds: 0}", 60}} {
		o, err := render(row.values)
		if err != nil {
			t.Fatal(err)
		}
		if got := *o.pods.Spec.Template.Spec.TerminationGracePeriodSeconds; got != row.want {
			t.Errorf("with %s a pod has %d s to end, not %d", row.values, got, row.want)
		}
		if has, want := o.container.Lifecycle != nil, row.want > 60; has != want {
			t.Errorf("with %s a pod waits before its end: %v", row.values, has)
		}
	}
}

// A server names itself to clients and to the other servers as its certificate does. It would name its addresses, and
// servers that refuse a certificate try again without end.
func TestServersHaveNames(t *testing.T) {
	o, err := render(rendered["secured"])
	if err != nil {
		t.Fatal(err)
	}
	for setting, port := range map[string]string{"client_advertise: $CLIENTS_AT": "4222", "  advertise: $ROUTES_AT": "6222"} {
		_, variable, _ := strings.Cut(setting, "$")
		want := core.EnvVar{Name: variable, Value: `"$(POD_NAME).ids-leafbus-nodes.shop.svc:` + port + `"`}
		if !strings.Contains(o.config.Data["nats.conf"], setting+"\n") || !slices.Contains(o.container.Env, want) {
			t.Errorf("a server does not advertise its name with port %s", port)
		}
	}
}

// The chart refuses what loses state or can never work.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		"{replicas: 2}":                   "two embedded servers",
		"{persistence: {enabled: false}}": "loses the state",
		"{nats: {auth: token}}":           "/nats/auth",
		"{waitSeconds: 2m}":               "waitSeconds",
		"{http: {tls: true}}":             "nats.tlsSecretName",
		"{replica: 3}":                    "replica",
		"{settings: {node: a}}":           "settings.node",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, and not %q", values, err, want)
		}
	}
}

// The rules are those that deploy/prometheus tests.
func TestRules(t *testing.T) {
	o, err := render(rendered["all"])
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(bytes, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Groups) == 0 || !reflect.DeepEqual(o.rule.Spec, want) {
		t.Errorf("the chart has other rules than deploy/prometheus: %v", o.rule.Spec.Groups)
	}
}
