"""Target and machine become a plan: GPU assignment, ports, deadlines, engine files."""
