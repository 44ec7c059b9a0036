"""One file per failure: what happened first, and all that is lost when the process and the run's folder are gone."""
