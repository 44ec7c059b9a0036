"""What tests share: plans for machines that are not here, and launchers that really run."""
