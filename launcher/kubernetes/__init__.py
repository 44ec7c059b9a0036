"""A target's plan as Kubernetes manifests: values in, YAML out; talks to no cluster."""
