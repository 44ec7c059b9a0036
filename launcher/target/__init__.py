"""Targets: named, versioned descriptions of what to serve and on what. Data only; no code runs from them."""
