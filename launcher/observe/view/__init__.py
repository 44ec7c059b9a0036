"""The live view: log lines scroll as they always do, and below them stands what the deployment is doing now."""
