// kubebox: one program that is, by the name it is called with (argv[0] or the
// first argument), etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kwok, kubectl or helm. One link instead of seven, for tests
// only. `podresources` is ours: the scheduler's own sum of what a pod requests.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones in CronJob

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	helmkube "helm.sh/helm/v4/pkg/kube"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// resetFlags empties the process-wide flag set: cobra adds it to every root
// command, and component-base has put a --version there that is not a bool.
func resetFlags() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}

func runKwok() int {
	resetFlags()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err == nil {
		command := kwok.NewCommand(ctx)
		command.PersistentFlags().AddFlagSet(flags)
		err = command.ExecuteContext(ctx)
	}
	if err != nil {
		logger.Error("kwok", "err", err)
		return 1
	}
	return 0
}

func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	return 0
}

func runHelm() int {
	resetFlags()
	helmkube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	if coded, ok := errors.AsType[helm.CommandError](err); ok {
		return coded.ExitCode
	}
	if err != nil {
		return 1
	}
	return 0
}

var parts = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(kcm.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kwok":                    runKwok,
	"kubectl":                 runKubectl,
	"helm":                    runHelm,
	"podresources":            runPodResources,
}

func main() {
	run, ok := parts[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if run, ok = parts[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: kubebox etcd|kube-apiserver|kube-scheduler|kube-controller-manager|kwok|kubectl|helm|podresources [flags]")
		os.Exit(2)
	}
	os.Exit(run())
}
