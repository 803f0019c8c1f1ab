package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// runPodResources reads a PodList on standard input and prints a JSON object:
// for each pod, by namespace/name, what the scheduler takes it to request.
func runPodResources() int {
	var pods v1.PodList
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		fmt.Fprintln(os.Stderr, "podresources: standard input is no PodList:", err)
		return 1
	}
	requests := make(map[string]v1.ResourceList, len(pods.Items))
	for i := range pods.Items {
		pod := &pods.Items[i]
		// The options of the scheduler for pods that run or wait, with the gates that are on by default.
		requests[pod.Namespace+"/"+pod.Name] = resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
	}
	if err := json.NewEncoder(os.Stdout).Encode(requests); err != nil {
		fmt.Fprintln(os.Stderr, "podresources:", err)
		return 1
	}
	return 0
}
