"""One module per engine: what each role runs, as argv, environment, files and probes."""
