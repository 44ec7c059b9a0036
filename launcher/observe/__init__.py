"""What the launcher shows of itself: admin pages, status, metrics, incidents."""
