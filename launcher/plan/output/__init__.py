"""The plan for people and programs: a table, JSON, or the same deployment as a bash script."""
