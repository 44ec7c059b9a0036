"""The Grafana dashboard over the launcher's /metrics, made with `python -m scripts.grafana`."""
